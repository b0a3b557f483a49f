//! Private PostgreSQL clusters, started from the installed programs, with the faults that tests need.
//!
//! A [`Cluster`] lives in a temporary folder on a port of its own and is gone when it is dropped, or when the
//! test program dies. Ordinary tests share one per test program and take a [`Database`] each (`shared`); a
//! test that freezes, kills, promotes or reconfigures starts its own. The product connects as `cardfence`,
//! who owns its databases and is no superuser, as it should be in production.

mod installed;
mod settings;
mod shared;
mod standby;

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use std::{fs, thread};

use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{AssertSqlSafe, Connection as _};

pub(crate) use self::settings::Settings;
pub(crate) use self::shared::{Database, shared};
use super::eventually::try_eventually;
use super::processes::{self, Signal};
use super::scratch::Scratch;
use super::{ports, report, tail};

/// How long a start, a stop or a promotion may take, crash recovery included, on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A port may be taken by somebody else between the choice and the start.
const PORT_TRIES: usize = 5;

/// The role that the product uses, and the one that the harness uses.
const OWNER: &str = "cardfence";
const SUPERUSER: &str = "postgres";

/// One PostgreSQL server, primary or standby.
#[derive(Debug)]
pub(crate) struct Cluster {
    data: PathBuf,
    port: u16,
    /// The postmaster, as long as it is ours to wait for.
    postmaster: Mutex<Option<Child>>,
    templates: tokio::sync::Mutex<BTreeSet<String>>,
    // Last: the folder goes after everything that works in it.
    scratch: Scratch,
}

impl Cluster {
    /// A new empty primary, ready for connections.
    ///
    /// # Panics
    /// When PostgreSQL is not installed or does not start, with the end of its log.
    pub(crate) async fn start(settings: Settings) -> Self {
        let scratch = settings.scratch();
        installed::hand_over(scratch.path());
        let data = scratch.path().join("data");
        let args = ["--auth=trust", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync", "--pgdata"]
            .into_iter()
            .map(Into::into)
            .chain([data.clone().into_os_string()])
            .chain(["--locale-provider=icu", "--icu-locale=en-US", "--username", SUPERUSER].map(Into::into))
            .collect();
        installed::run("initdb", args, scratch.path().to_owned()).await;
        append(&data.join("postgresql.conf"), &settings.to_conf());
        let cluster = Self::launch(scratch, data).await;
        cluster.execute(&format!("CREATE ROLE {OWNER} LOGIN")).await;
        cluster
    }

    /// Starts a server on the data folder, on a port that nobody else has.
    async fn launch(scratch: Scratch, data: PathBuf) -> Self {
        let mut cluster = Self {
            data,
            port: 0,
            postmaster: Mutex::new(None),
            templates: tokio::sync::Mutex::default(),
            scratch,
        };
        for _ in 1..PORT_TRIES {
            cluster.port = ports::free();
            cluster.spawn();
            match cluster.try_ready(PATIENCE).await {
                Ok(()) => return cluster,
                Err(_) if cluster.log().contains("could not bind IPv4 address") => {}
                Err(status) => panic!("PostgreSQL did not start: {status}"),
            }
        }
        panic!("PostgreSQL found no free port:\n{}", tail(&cluster.log(), 20));
    }

    /// Starts the postmaster under the cluster's own port.
    fn spawn(&self) {
        let log = fs::File::options().create(true).append(true).open(self.log_file());
        let log = log.expect("the cluster's folder can be written");
        let child = installed::program("postgres")
            .arg("-D")
            .arg(&self.data)
            // Not in the file: a standby's copy of the file would name its primary's port.
            .args(["-p", &self.port.to_string()])
            // From its first moment on the folder names the process (see `processes`).
            .current_dir(&self.data)
            .stdout(log.try_clone().expect("a file can be opened twice"))
            .stderr(log)
            .process_group(0)
            .spawn()
            .expect("PostgreSQL can be started");
        *self.child() = Some(child);
    }

    /// Waits until the server answers a query.
    ///
    /// # Panics
    /// When it ends or does not answer within the time, with the end of its log.
    pub(crate) async fn wait_ready(&self, within: Duration) {
        if let Err(status) = self.try_ready(within).await {
            panic!("PostgreSQL is not ready within {within:?}: {status}");
        }
    }

    async fn try_ready(&self, within: Duration) -> Result<(), String> {
        let ready = try_eventually(within, async || {
            if let Some(status) = self.ended() {
                // Not worth more questions, but the caller asks until the time is over.
                return Ok(Err(format!("it ended: {status}")));
            }
            let mut connection = self.connect(SUPERUSER).await.map_err(|error| error.to_string())?;
            let data =
                sqlx::query_scalar("SELECT current_setting('data_directory')").fetch_one(&mut connection);
            let data: String = data.await.map_err(|error| error.to_string())?;
            if Path::new(&data) == self.data {
                Ok(Ok(()))
            } else {
                Err(format!("the port belongs to the server on {data}"))
            }
        });
        ready.await.flatten().map_err(|status| format!("{status}\n{}", tail(&self.log(), 20)))
    }

    /// The address clients connect to; it stays the same over restarts.
    pub(crate) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// The URL of one database, for the product.
    pub(crate) fn url(&self, database: &str) -> String {
        url_at(self.address(), database)
    }

    /// The folder of the server's data.
    pub(crate) fn data(&self) -> &Path {
        &self.data
    }

    /// The process id of the postmaster, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.ended();
        self.child().as_ref().map(Child::id)
    }

    /// What the server has logged so far.
    pub(crate) fn log(&self) -> String {
        fs::read(self.log_file())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Creates an empty database and returns its name.
    pub(crate) async fn create_database(&self) -> String {
        self.create_database_from("template0").await
    }

    /// Creates a copy of the database `template` and returns its name.
    pub(crate) async fn create_database_from(&self, template: &str) -> String {
        // Counted over all clusters: a promoted standby has its primary's databases.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.execute(&format!("CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {template}")).await;
        name
    }

    /// Creates the database `name` as a template, once: `prepare` is given its URL and fills it, and the
    /// callers that come meanwhile wait. Copies are made by [`Cluster::create_database_from`].
    pub(crate) async fn template(&self, name: &str, prepare: impl AsyncFnOnce(String)) {
        let mut templates = self.templates.lock().await;
        if templates.contains(name) {
            return;
        }
        self.execute(&format!("CREATE DATABASE {name} OWNER {OWNER}")).await;
        prepare(self.url(name)).await;
        // A copy is refused while somebody is connected, so nobody can be.
        self.execute(&format!("ALTER DATABASE {name} ALLOW_CONNECTIONS false")).await;
        self.execute(&format!(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE datname = '{name}'"
        ))
        .await;
        templates.insert(name.to_owned());
    }

    /// A superuser's connection to `database`.
    pub(crate) async fn connect(&self, database: &str) -> sqlx::Result<PgConnection> {
        let options = PgConnectOptions::new_without_pgpass()
            .host("127.0.0.1")
            .port(self.port)
            .username(SUPERUSER)
            .database(database)
            .ssl_mode(PgSslMode::Disable);
        PgConnection::connect_with(&options).await
    }

    /// Runs one statement as superuser, outside a transaction.
    ///
    /// # Panics
    /// When it fails.
    pub(crate) async fn execute(&self, statement: &str) {
        let mut connection = self.superuser().await;
        if let Err(error) = sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await {
            panic!("{statement}: {error}");
        }
    }

    /// Asks for one value as superuser; cast it to text in the query.
    ///
    /// # Panics
    /// When the query fails.
    pub(crate) async fn ask(&self, query: &str) -> String {
        let mut connection = self.superuser().await;
        match sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut connection).await {
            Ok(value) => value,
            Err(error) => panic!("{query}: {error}"),
        }
    }

    async fn superuser(&self) -> PgConnection {
        match self.connect(SUPERUSER).await {
            Ok(connection) => connection,
            Err(error) => panic!("cannot connect to the test cluster: {error}\n{}", tail(&self.log(), 20)),
        }
    }

    /// Changes a setting of the running server; one that needs a restart is taken over at the next.
    pub(crate) async fn set(&self, name: &str, value: &str) {
        self.execute(&format!("ALTER SYSTEM SET {name} = '{}'", value.replace('\'', "''"))).await;
        self.execute("SELECT pg_reload_conf()").await;
    }

    /// Kills the postmaster alone (SIGKILL), as an operator or the kernel would: its children notice by
    /// themselves, within moments, and end.
    pub(crate) fn kill_9(&self) {
        if let Some(mut child) = self.child().take() {
            processes::signal(child.id(), Signal::KILL);
            child.wait().expect("the postmaster is our child");
        }
    }

    /// Kills every process of the server at once (SIGKILL): what the loss of the machine does, except that
    /// what was written but not synced survives in the kernel.
    pub(crate) fn crash(&self) {
        // Stopped first, so that none sees another die and acts on it.
        processes::freeze(&self.data, self.pid());
        processes::kill(&self.data);
        self.kill_9();
    }

    /// Shuts the server down in order (`fast`: transactions are rolled back, sessions ended).
    pub(crate) async fn stop(&self) {
        if let Some(pid) = self.pid() {
            processes::signal(pid, Signal::INT);
            self.wait_ended().await;
        }
    }

    /// Starts the server again under its old address, after whatever ended it, or after a shutdown that this
    /// does first. Returns when it answers.
    pub(crate) async fn restart(&self) {
        self.stop().await;
        // Orphans of a killed postmaster still hold its shared memory; a new one refuses to start then.
        self.wait_empty().await;
        self.spawn();
        self.wait_ready(PATIENCE).await;
    }

    /// Stops every process of the server (SIGSTOP): connections stay open, and nobody answers.
    pub(crate) fn freeze(&self) {
        processes::freeze(&self.data, self.pid());
    }

    /// Lets a frozen server go on.
    pub(crate) fn thaw(&self) {
        processes::thaw(&self.data);
    }

    /// Frees the segment of shared memory by which two servers on one folder would notice each other. It
    /// belongs to the system and outlives a killed server, until the next one on the folder frees it.
    fn free_shared_memory(&self) {
        let lock = fs::read_to_string(self.data.join("postmaster.pid")).unwrap_or_default();
        // The seventh line: key and number of the segment.
        if let Some(segment) = lock.lines().nth(6).and_then(|line| line.split_whitespace().nth(1)) {
            std::process::Command::new("ipcrm").args(["-m", segment]).output().ok();
        }
    }

    fn log_file(&self) -> PathBuf {
        self.scratch.path().join("log")
    }

    fn child(&self) -> std::sync::MutexGuard<'_, Option<Child>> {
        self.postmaster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The exit status, if the postmaster has ended and nobody was told yet.
    fn ended(&self) -> Option<ExitStatus> {
        let mut child = self.child();
        let status = child.as_mut()?.try_wait().expect("the postmaster is our child")?;
        *child = None;
        Some(status)
    }

    async fn wait_ended(&self) {
        let ended = try_eventually(PATIENCE, async || match self.pid() {
            None => Ok(()),
            Some(pid) => Err(format!("postmaster {pid} does not end")),
        });
        if let Err(status) = ended.await {
            panic!("{status}\n{}", tail(&self.log(), 20));
        }
    }

    async fn wait_empty(&self) {
        let empty = try_eventually(PATIENCE, async || {
            let left = processes::inside(&self.data);
            if left.is_empty() { Ok(()) } else { Err(format!("orphans {left:?} of the postmaster live on")) }
        });
        if let Err(status) = empty.await {
            panic!("{status}\n{}", tail(&self.log(), 20));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if thread::panicking() {
            report(&format!("log of PostgreSQL on port {}:\n{}", self.port, tail(&self.log(), 40)));
        }
        processes::kill(self.scratch.path());
        self.kill_9();
        self.free_shared_memory();
    }
}

/// The URL of a database behind another address: that of a proxy.
pub(crate) fn url_at(address: SocketAddr, database: &str) -> String {
    format!("postgres://{OWNER}@{address}/{database}")
}

fn append(file: &Path, text: &str) {
    let mut all = fs::read_to_string(file).expect("initdb has written its files");
    all.push_str(text);
    // Written over, not replaced: the file keeps its owner.
    fs::write(file, all).expect("the cluster's folder can be written");
}
