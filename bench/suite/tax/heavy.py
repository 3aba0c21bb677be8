"""The gateway's tax on a query that costs much."""

from __future__ import annotations

from suite.tax.sides import row

ROW = row(
    "heavy",
    "the gateway's tax: the e-mail query, from Kafka to Kafka on one core",
    "Generated mail, one partition. Throughput: of 10,000 mails. Latency: from production to the committed result, "
    "at half of what the slower of the gateway and plain Spark took when warm. Each system is warmed up with 40,000 "
    "mails; between its turns plain Spark is paused, and the gateway has nothing to do. In real-time mode: two turns.",
    least=1.0,
)
