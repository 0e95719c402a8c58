-- A table, not a view: the source is there only while dbt runs.
{{ config(materialized='incremental', incremental_strategy='delete+insert', unique_key='message_key') }}

with messages as (

    select *, try_cast(try(decode(body)) as json) as document
    from {{ source('lake', 'messages') }}
    where topic = 'orders'
    {% if is_incremental() %}
        -- The newest days are taken anew: what was archived late is of the day before, at most.
        and date >= (select coalesce(max(date), date '1970-01-01') from {{ this }}) - interval 1 day
    {% endif %}

)

select
    partition || ':' || "offset" as message_key,
    id,
    partition,
    "offset",
    timestamp,
    date,
    document ->> 'user' as customer,
    try_cast(document ->> 'total' as decimal(18, 2)) as total
from messages
where document is not null
