-- Offsets of a partition have no gaps and stand once: each row here is a hole, or a repeat.
select topic, partition, max("offset") - min("offset") + 1 - count(*) as missing
from {{ source('lake', 'messages') }}
group by all
having missing <> 0
