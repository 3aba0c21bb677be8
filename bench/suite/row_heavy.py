"""The gateway's tax on a query that costs much."""

from __future__ import annotations

from suite.taxrow import row

ROW = row(
    "heavy",
    "the gateway's tax: the e-mail query, from Kafka to Kafka on one core",
    "Generated mail, one partition. Throughput: of 40,000 mails after 60,000 that warm up. Latency: from production to "
    "the committed result, at 1,500 mails/s.",
    least=1.0,
)
