//! The real binary, as a process: started on a free port, watched, frozen, killed.
//!
//! A [`Server`] is known by the line it prints when it listens; everything it says on standard error is kept
//! and shown when its test fails. It works in a temporary folder of its own, which ends it with the test
//! program (see `scratch`), so paths in arguments must be absolute.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, thread};

use super::eventually::{eventually, try_eventually};
use super::processes::{self, Signal};
use super::scratch::Scratch;
use super::{report, tail};

/// How long a server may take until it listens: it may have to migrate and fold a ledger first.
const LISTENS_WITHIN: Duration = Duration::from_secs(30);

/// How long a drain may take: the product's own deadline of 10 s, and room.
const ENDS_WITHIN: Duration = Duration::from_secs(20);

/// How long a command of the CLI may take.
const DONE_WITHIN: Duration = Duration::from_secs(60);

/// The address in a line that says where the server listens.
fn listening(line: &str) -> Option<SocketAddr> {
    // The line may be a log record with more around it, and may be coloured.
    let rest = line.split("listening on http://").nth(1)?;
    let end =
        rest.find(|c: char| !c.is_ascii_digit() && !matches!(c, '.' | ':' | '[' | ']')).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// How a process is to be started.
#[derive(Debug)]
pub(crate) struct Launch {
    command: Command,
    scratch: Scratch,
}

impl Launch {
    /// The product's binary with `args`, without any setting from this program's environment.
    pub(crate) fn cardfence<A: Into<OsString>>(args: impl IntoIterator<Item = A>) -> Self {
        Self::program(env!("CARGO_BIN_EXE_cardfence"), args)
    }

    /// Any program.
    pub(crate) fn program<A: Into<OsString>>(path: &str, args: impl IntoIterator<Item = A>) -> Self {
        let scratch = Scratch::new("server");
        let mut command = Command::new(path);
        command
            .args(args.into_iter().map(Into::into))
            .current_dir(scratch.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0);
        for (name, _) in env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("CARDFENCE_")) {
                command.env_remove(name);
            }
        }
        Self { command, scratch }
    }

    /// Sets one environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs a command that ends by itself, such as one of the CLI.
    ///
    /// # Panics
    /// When it does not end within a minute.
    pub(crate) async fn output(self) -> Output {
        let mut process = self.spawn();
        let status = process.wait(DONE_WITHIN).await;
        Output { code: status.code(), stdout: process.stdout.finish(), stderr: process.stderr.finish() }
    }

    /// Starts a server and waits until it listens.
    ///
    /// # Panics
    /// When it ends before, or is too slow, with what it said.
    pub(crate) async fn start(self) -> Server {
        match self.try_start().await {
            Ok(server) => server,
            Err(failure) => panic!("the server did not start: {failure}"),
        }
    }

    /// As [`Launch::start`], for a start that is expected to fail: the error says how it ended and what it
    /// said.
    pub(crate) async fn try_start(self) -> Result<Server, String> {
        let mut process = self.spawn();
        let found = try_eventually(LISTENS_WITHIN, async || {
            if let Some(address) = process.listens_at() {
                return Ok(Ok(address));
            }
            if let Some(status) = process.ended() {
                return Ok(Err(format!("it ended before it listened ({status})")));
            }
            Err("it has not said where it listens".to_owned())
        });
        match found.await.flatten() {
            Ok(address) => Ok(Server { process, address }),
            Err(failure) => {
                process.kill_9();
                Err(format!("{failure}; it said:\n{}", tail(&process.stderr.finish(), 40)))
            }
        }
    }

    fn spawn(mut self) -> Process {
        let mut child = self.command.spawn().unwrap_or_else(|error| panic!("{:?}: {error}", self.command));
        let stdout = Captured::new(child.stdout.take().expect("it is piped"));
        let stderr = Captured::new(child.stderr.take().expect("it is piped"));
        Process { child: Mutex::new(child), stdout, stderr, scratch: self.scratch }
    }
}

/// What a command gave.
#[derive(Debug)]
pub(crate) struct Output {
    /// `None`: it was ended by a signal.
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// A running server that listens.
#[derive(Debug)]
pub(crate) struct Server {
    process: Process,
    address: SocketAddr,
}

impl Server {
    /// `cardfence serve` on a free port with its ledger at `store` (`sqlite:PATH` or `postgres://…`).
    pub(crate) async fn serve(store: &str) -> Self {
        let launch = Launch::cardfence(["serve", "--listen", "127.0.0.1:0", "--store", store]);
        launch.start().await
    }

    /// `cardfence serve` on a free port over the standby at `store`, proven by the database at `authority`.
    pub(crate) async fn standby(store: &str, authority: &str) -> Self {
        let args = ["serve", "--listen", "127.0.0.1:0", "--store", store, "--authority", authority];
        Launch::cardfence(args).start().await
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL, without a slash at its end.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.child().id()
    }

    /// All that it has said on standard error so far.
    pub(crate) fn stderr(&self) -> String {
        self.process.stderr.text()
    }

    /// SIGKILL; returns when it is gone.
    pub(crate) fn kill_9(&self) {
        self.process.kill_9();
    }

    /// SIGSTOP; returns when it stands still.
    pub(crate) async fn freeze(&self) {
        processes::signal(self.pid(), Signal::STOP);
        eventually(ENDS_WITHIN, async || {
            if processes::is_stopped(self.pid()) { Ok(()) } else { Err("it still runs".to_owned()) }
        })
        .await;
    }

    /// SIGCONT.
    pub(crate) fn thaw(&self) {
        processes::signal(self.pid(), Signal::CONT);
    }

    /// SIGTERM; returns its exit status when it has drained.
    ///
    /// # Panics
    /// When that takes longer than its own deadline allows.
    pub(crate) async fn terminate(&self) -> ExitStatus {
        processes::signal(self.pid(), Signal::TERM);
        self.process.wait(ENDS_WITHIN).await
    }
}

#[derive(Debug)]
struct Process {
    child: Mutex<Child>,
    stdout: Captured,
    stderr: Captured,
    scratch: Scratch,
}

impl Process {
    fn listens_at(&self) -> Option<SocketAddr> {
        self.stderr.text().lines().find_map(listening)
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> Option<ExitStatus> {
        self.child().try_wait().expect("it is our child")
    }

    fn kill_9(&self) {
        // Whoever it has started goes too: they hold its output open.
        processes::kill(self.scratch.path());
        self.child().wait().expect("it is our child");
    }

    async fn wait(&self, within: Duration) -> ExitStatus {
        eventually(within, async || self.ended().ok_or("it still runs".to_owned())).await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = self.child().id();
        self.kill_9();
        if thread::panicking() {
            report(&format!("process {pid} said:\n{}", tail(&self.stderr.finish(), 100)));
        }
    }
}

/// One output stream, read by a thread as it comes.
#[derive(Debug)]
struct Captured {
    text: Arc<Mutex<String>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Captured {
    fn new(stream: impl Read + Send + 'static) -> Self {
        let text = Arc::new(Mutex::new(String::new()));
        let into = Arc::clone(&text);
        let reader = thread::Builder::new()
            .name("captured output".to_owned())
            .spawn(move || {
                let mut stream = BufReader::new(stream);
                let mut line = Vec::new();
                while stream.read_until(b'\n', &mut line).is_ok_and(|length| length > 0) {
                    let mut text = into.lock().unwrap_or_else(PoisonError::into_inner);
                    text.push_str(&String::from_utf8_lossy(&line));
                    line.clear();
                }
            })
            .expect("a thread can be started");
        Self { text, reader: Some(reader) }
    }

    fn text(&self) -> String {
        self.text.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everything, once the process is gone: what it said last may still be under way in the pipe.
    fn finish(&mut self) -> String {
        if let Some(reader) = self.reader.take() {
            reader.join().ok();
        }
        self.text()
    }
}
