{{ config(materialized='table') }}

select
    date_trunc('hour', timestamp) as hour,
    count(*) as orders,
    count(distinct customer) as customers,
    sum(total) as total
from {{ ref('stg_orders') }}
group by all
