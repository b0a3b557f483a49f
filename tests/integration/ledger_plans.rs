//! The plans of the statements that run all the time: the expected index, and no scan of a whole table.
//!
//! Explained as a session runs them: prepared and planned while the ledger is empty, and kept while it grows
//! without statistics. And as the planner likes them best, with statistics and without the session's settings.

use cardfence::ledger::postgres::HOT_STATEMENTS;
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::ledger_conformance::database;
use crate::support::postgres::shared;

/// 4,000 agents with five revisions each.
const FILL: &str = "
    INSERT INTO entry
        SELECT n, sha256(n::text::bytea), sha256(n::text::bytea), repeat('b', 500) FROM generate_series(1, 20000) n;
    INSERT INTO revision
        SELECT 'ns-' || n % 40, 'agent-' || n % 4000, 1 + n / 4000, n + 1, 'card', sha256('r'), sha256('c'), NULL,
               repeat('c', 2000)::bytea
        FROM generate_series(0, 19999) n;
    INSERT INTO request
        SELECT 'anonymous', 'request-' || n, sha256('n'), 'created', 'ns-' || n % 40, 'agent-' || n % 4000,
               1 + n / 4000, n
        FROM generate_series(0, 19999) n;
    INSERT INTO liveness
        SELECT 'ns-' || n % 40, 'agent-' || n, 1, n, ARRAY[n], NULL, 30000000, n FROM generate_series(0, 3999) n;
    INSERT INTO service SELECT n * 1000000::bigint, n * 1000000::bigint FROM generate_series(1, 4000) n;
    INSERT INTO replica
        SELECT 'replica-' || n, 'replica-' || n, 'node', n, n, NULL, 0, '1', NULL, NULL, NULL, NULL,
               (extract(epoch FROM now()) * 1000000)::bigint - n::bigint * 1000000
        FROM generate_series(0, 9999) n;";

/// A statement's arguments, and the indexes that its plan must use.
fn expected(name: &str) -> (&'static str, &'static [&'static str]) {
    match name {
        "head" => ("19000", &["entry_pkey", "service_pkey"]),
        "page" => ("19000, 100, 8388608", &["entry_pkey", "revision_seq_key"]),
        "liveness" => ("3990, 5000", &["liveness_origin_confirmed_at_idx"]),
        "lookup" => (
            "ARRAY['ns-7','ns-9'], ARRAY['agent-7','agent-9'], ARRAY['anonymous','anonymous'], \
             ARRAY['request-7','request-9'], ARRAY[7,NULL]::bigint[]",
            &["revision_pkey", "entry_pkey", "request_pkey", "liveness_pkey"],
        ),
        "forget" => ("10, 5000", &["request_at_idx"]),
        "confirm" => (
            "ARRAY['ns-7','ns-9'], ARRAY['agent-7','agent-9'], ARRAY[sha256('c'),sha256('c')]",
            &["revision_pkey", "liveness_pkey", "service_pkey"],
        ),
        "tick" => ("2000000, 500000", &["service_pkey"]),
        "revision" => ("'ns-7', 'agent-7', 2", &["revision_pkey", "entry_pkey"]),
        "revisions" => {
            ("'ns-7', 'agent-7', 9223372036854775807, 15000, 20", &["revision_pkey", "entry_pkey"])
        }
        "report" => (
            "ARRAY['replica-7','new'], ARRAY['node','edge'], ARRAY[7,8], ARRAY[7,8], ARRAY[7,NULL]::bigint[], \
             ARRAY[0,1], ARRAY['1','1'], ARRAY[NULL,'replica-7'], ARRAY[1,NULL]::bigint[], \
             ARRAY[1,NULL]::bigint[], ARRAY[1,NULL]::bigint[], ARRAY[0,5], 'replica-7', 604800000000, 100",
            &["replica_reported_at_idx", "replica_pkey"],
        ),
        "replicas" => ("60000000, 4000", &["replica_reported_at_idx"]),
        "card" => ("'ns-7', 'agent-7', 2", &["revision_pkey"]),
        other => panic!("statement `{other}` has no expected plan"),
    }
}

async fn run(connection: &mut PgConnection, sql: &str) -> Vec<String> {
    let rows = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await;
    let rows = rows.unwrap_or_else(|error| panic!("{sql}: {error}"));
    rows.iter().filter_map(|row| row.try_get(0).ok()).collect()
}

/// Executes each statement often enough for the server to make up its mind between a general plan and one
/// for the arguments. Leaves no trace.
async fn execute_all(connection: &mut PgConnection) {
    for (name, _) in HOT_STATEMENTS {
        let (arguments, _) = expected(name);
        run(connection, "BEGIN").await;
        for _ in 0..7 {
            run(connection, &format!("EXECUTE hot_{name}({arguments})")).await;
        }
        run(connection, "ROLLBACK").await;
    }
}

async fn check_all(connection: &mut PgConnection, circumstance: &str) {
    for (name, _) in HOT_STATEMENTS {
        let (arguments, indexes) = expected(name);
        let plan = run(connection, &format!("EXPLAIN EXECUTE hot_{name}({arguments})")).await.join("\n");
        // The table of one row may be read as a whole.
        let scans = plan.lines().filter(|line| line.contains("Seq Scan") && !line.contains("on ledger"));
        assert_eq!(scans.count(), 0, "{name}, {circumstance}:\n{plan}");
        for index in indexes {
            assert!(plan.contains(index), "{name}, {circumstance}, does not use {index}:\n{plan}");
        }
        let sorts_its_arguments = matches!(name, "lookup" | "confirm");
        assert!(!plan.contains("Sort") || sorts_its_arguments, "{name}, {circumstance}, sorts:\n{plan}");
    }
}

#[tokio::test]
async fn hot_statements_use_their_indexes() {
    let database = database().await;
    let mut kept = shared().await.connect(database.name()).await.expect("the cluster answers");
    let mut fresh = shared().await.connect(database.name()).await.expect("the cluster answers");
    for table in ["entry", "revision", "request", "liveness", "service", "replica"] {
        run(&mut kept, &format!("ALTER TABLE {table} SET (autovacuum_enabled = off)")).await;
    }
    run(&mut kept, "SET enable_seqscan = off; SET plan_cache_mode = force_generic_plan").await;
    for (name, statement) in HOT_STATEMENTS {
        run(&mut kept, &format!("PREPARE hot_{name} AS {statement}")).await;
        run(&mut fresh, &format!("PREPARE hot_{name} AS {statement}")).await;
    }
    execute_all(&mut kept).await;
    run(&mut fresh, FILL).await;
    check_all(&mut kept, "planned when empty").await;
    run(&mut fresh, "ANALYZE").await;
    execute_all(&mut fresh).await;
    check_all(&mut fresh, "with statistics").await;
}
