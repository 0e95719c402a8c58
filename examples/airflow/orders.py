"""An Airflow DAG: each hour the archive takes what is new, nsqd is checked, and dbt builds its
models of the table (examples/dbt).

Airflow 3 with its standard provider. The workers have `penstock[spark]` and a JRE in one
environment, and dbt-duckdb in another; say where in the variables below.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import dag

NSQD = "127.0.0.1:4151"
TABLE = "/data/lake/messages"
PENSTOCK = "/opt/penstock/bin/penstock"
DBT, PROJECT = "/opt/dbt/bin/dbt", "/opt/penstock/examples/dbt"


@dag(
    schedule="@hourly",
    start_date=datetime(2026, 1, 1),
    catchup=False,  # a run takes all that there is: what was missed comes with the next
    max_active_runs=1,  # an archive of one name runs once at a time
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5)},
)
def orders() -> None:
    # A run that is killed and tried again writes no message twice: the checkpoint knows.
    archive = BashOperator(
        task_id="archive",
        bash_command=f"{PENSTOCK} pipeline run archive --url http://{NSQD} --topics orders "
        f"--table {TABLE} --once",
        execution_timeout=timedelta(minutes=50),
    )
    # It fails when a consumer is behind, or nsqd is not well. The archive is whole for all that.
    check = BashOperator(
        task_id="check",
        bash_command=f"{PENSTOCK} check orders --nsqd-http-address {NSQD} --depth-crit 1000000",
    )
    build = BashOperator(
        task_id="dbt",
        bash_command=f"{DBT} build --project-dir {PROJECT} --profiles-dir {PROJECT}",
        env={"PENSTOCK_TABLE": TABLE, "PENSTOCK_DUCKDB": "/data/lake/orders.duckdb"},
        append_env=True,
    )
    archive >> [check, build]


orders()
