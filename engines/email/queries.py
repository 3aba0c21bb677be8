r"""The e-mail benchmark's queries (ESM section 3.2 and Figure 1) as text for Spark, and the schemas they read.

``EMAIL_SQL`` is Q1 to Q4 as one stateless SELECT over the view ``events``; Q5 is ``engines.email.running``. The rules
are those of the published benchmark, with its one mistake corrected:

- Q1 keeps mails whose sender ends with ``@enron.com``, and of ``to`` the addresses that contain ``enron.com``. ``cc``
  and ``bcc`` leave nothing in the answer, so they are not read, as in the paper's reduced stream.
- Q2 replaces the three names in the body and then lower-cases it (as published it lower-cased first, and no name ever
  matched).
- Q3 counts characters; words (split on single blanks, longer than one character); paragraphs (runs of lines that are
  not blank); and puts the most frequent word before the subject: at least two occurrences, else ``NONE``, of equally
  frequent ones the smallest.
- Q4 compressed the mail and threw it away; here it leaves an MD5 of the processed body, so that an answer proves the
  whole text without carrying it.
"""

from __future__ import annotations

SCHEMA_DDL = (
    "message_id STRING, sent TIMESTAMP, sender STRING, `to` ARRAY<STRING>, cc ARRAY<STRING>, bcc ARRAY<STRING>, "
    "subject STRING, body STRING"
)

EMAIL_SQL = r"""
SELECT
  message_id,
  sender,
  filter(coalesce(`to`, array()), address -> contains(address, 'enron.com')) AS recipients,
  concat(
    aggregate(
      sort_array(words),
      named_struct('word', '', 'run', 0, 'best', 'NONE', 'most', 1),
      (seen, word) -> named_struct(
        'word', word,
        'run', if(word = seen.word, seen.run + 1, 1),
        'best', if(word = seen.word AND seen.run >= seen.most, word, seen.best),
        'most', if(word = seen.word AND seen.run >= seen.most, seen.run + 1, seen.most)
      ),
      seen -> seen.best
    ),
    ' ', coalesce(subject, '')
  ) AS subject,
  length(text) AS characters,
  size(words) AS words,
  if(btrim(text, ' \t\n\r\u000b\u000c') = '', 0,
     size(split(btrim(text, ' \t\n\r\u000b\u000c'), '\\n\\s*\\n'))) AS paragraphs,
  md5(text) AS body_md5
FROM (
  SELECT message_id, sender, `to`, subject, text, filter(split(text, ' '), word -> length(word) > 1) AS words
  FROM (
    SELECT
      message_id, sender, `to`, subject,
      lower(replace(replace(replace(coalesce(body, ''),
        'Kenneth Lay', 'Person1'), 'Jeffrey Skilling', 'Person2'), 'Andrew Fastow', 'Person3')) AS text
    FROM events
    WHERE sender LIKE '%@enron.com'
  )
)
"""

FLAT_SCHEMA_DDL = (
    "message_id STRING, sent STRING, sender STRING, `to` STRING, cc STRING, bcc STRING, subject STRING, body STRING"
)
"""The same mail in columns of text, as Spark reads them of Kafka by itself; addresses are parted by blanks."""

_UNFLATTENED = "(SELECT message_id, sender, split(`to`, ' ') AS `to`, subject, body FROM events)"
FLAT_SQL = (
    "SELECT message_id, sender, array_join(recipients, ' ') AS recipients, subject, "  # noqa: S608 -- of constants
    "characters, words, paragraphs, body_md5 "
    f"FROM ({EMAIL_SQL.replace('FROM events', f'FROM {_UNFLATTENED}')})"
)
"""The same query over these columns; ``recipients`` of its result is text, too."""

RESULT_DDL = (
    "message_id STRING, sender STRING, recipients ARRAY<STRING>, subject STRING, characters INT, words INT, "
    "paragraphs INT, body_md5 STRING"
)

Q5_SCHEMA_DDL = f"{RESULT_DDL}, _seq BIGINT"
Q5_RESULT_DDL = "window BIGINT, mails INT, characters BIGINT, words BIGINT, paragraphs BIGINT, mean_characters DOUBLE"
