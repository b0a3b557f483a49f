//! The ledger's suite through PgBouncer in transaction mode, with fewer server connections than sessions, so
//! that each statement may meet another server process.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use async_trait::async_trait;
use cardfence::ledger::conformance::{Backend, Ledger};
use cardfence::ledger::postgres::{Options, Postgres};
use cardfence::ledger::{Entries as _, Error};

use crate::ledger_conformance::{database, options};
use crate::support::eventually::eventually;
use crate::support::ports;
use crate::support::postgres::{shared, url_at};
use crate::support::scratch::Scratch;

const MISSING: &str = "PgBouncer was not found; install it with `apt-get install pgbouncer`";

/// A PgBouncer before the shared cluster.
struct PgBouncer {
    address: SocketAddr,
    process: Child,
    _scratch: Scratch,
}

impl PgBouncer {
    async fn start() -> Self {
        let scratch = Scratch::new("pgbouncer");
        let port = ports::free();
        let cluster = shared().await.address();
        let settings = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = any\npool_mode = transaction\ndefault_pool_size = 3\n\
             max_client_conn = 200\nserver_round_robin = 1\nlogfile = {log}\n",
            cluster.ip(),
            cluster.port(),
            log = scratch.path().join("log").display(),
        );
        // `auth_type = any` needs to be told whom to be.
        let settings = settings.replace("* = host", "* = user=cardfence host");
        let file = scratch.path().join("pgbouncer.ini");
        std::fs::write(&file, settings).expect("the folder can be written");
        // In Debian it lies where only root looks.
        let installed = std::path::Path::new("/usr/sbin/pgbouncer");
        let mut command =
            Command::new(if installed.exists() { installed.as_os_str() } else { "pgbouncer".as_ref() });
        if rustix::process::geteuid().is_root() {
            let opened =
                std::fs::set_permissions(scratch.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777));
            opened.expect("the folder is ours");
            command.args(["-u", "postgres"]);
        }
        let process =
            command.arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let process = process.expect(MISSING);
        let address: SocketAddr = ([127, 0, 0, 1], port).into();
        eventually(Duration::from_secs(20), async || match tokio::net::TcpStream::connect(address).await {
            Ok(_) => Ok(()),
            Err(error) => Err(error.to_string()),
        })
        .await;
        Self { address, process, _scratch: scratch }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn pooled(address: SocketAddr, database: &str) -> Options {
    let mut options = options(&url_at(address, database));
    options.pooled = true;
    options
}

struct ThroughPgBouncer;

#[async_trait]
impl Backend for ThroughPgBouncer {
    async fn fresh(&self) -> Ledger {
        let database = database().await;
        let pgbouncer = PgBouncer::start().await;
        let store = Postgres::open(&pooled(pgbouncer.address, database.name())).await;
        let mut ledger = Ledger::over(store.expect("the ledger can be opened"));
        ledger.keep.push(Box::new(pgbouncer));
        ledger.keep.push(Box::new(database));
        ledger
    }
}

cardfence::ledger_conformance!(ThroughPgBouncer);

#[tokio::test]
async fn migrations_are_refused_through_pgbouncer() {
    let database = database().await;
    match Postgres::migrate(&pooled(shared().await.address(), database.name())).await {
        Err(Error::Unusable(text)) => assert!(text.contains("direct url"), "{text}"),
        other => panic!("it should be unusable, not {other:?}"),
    }
}

/// Many sessions at once, far more than server connections, each statement of which could meet another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_do_not_meet_each_other() {
    let database = database().await;
    let pgbouncer = PgBouncer::start().await;
    let store = Postgres::open(&pooled(pgbouncer.address, database.name())).await.expect("it can be opened");
    let (writes, _stop) = cardfence::ledger::conformance::start_writer(std::sync::Arc::new(store.clone()));
    let card = cardfence::ledger::conformance::small_card("1.0", &["a"]);
    let load = (0..300).map(async |number| {
        let write = cardfence::ledger::conformance::register(&format!("pooled/agent-{number}"), &card);
        writes.submit(write).await.expect("it is accepted");
    });
    let readers = (0..12).map(async |_| {
        let mut reading = store.open().await.expect("it can be read");
        let mut seen = 0;
        while seen < 300 {
            let head = reading.head(seen).await.expect("it has a head");
            assert!(head.head.seq >= seen);
            let page = reading.read(seen, 50).await.expect("it can be read");
            for entry in page {
                seen += 1;
                assert_eq!(entry.seq, seen);
            }
        }
    });
    futures::future::join(futures::future::join_all(load), futures::future::join_all(readers)).await;
}
