//! The PostgreSQL installation of this machine, and how its programs are run.
//!
//! The server refuses to run as root, so root runs everything as user `postgres`, whom the Debian package
//! creates. Nothing of the machine's own clusters is touched: only the programs are used.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs, os};

/// The version that the project states as tested; it is preferred when several are installed.
const TESTED: u32 = 15;

/// Where to look before anywhere else.
const BINDIR: &str = "CARDFENCE_TEST_PG_BINDIR";

const MISSING: &str = "PostgreSQL's server programs (initdb, postgres) were not found; install them with \
    `apt-get install postgresql`, or name their folder in CARDFENCE_TEST_PG_BINDIR";

#[derive(Debug)]
struct Installed {
    bindir: PathBuf,
    /// User and group of `postgres`, when we are root and must become somebody else.
    user: Option<(u32, u32)>,
}

/// A command line that runs one of PostgreSQL's programs as a user it accepts.
///
/// The process id of the spawned child is the program's own, also when the user is changed.
pub(super) fn program(name: &str) -> Command {
    let path = installed().bindir.join(name);
    let mut command = if installed().user.is_some() {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "--"]).arg(path);
        command
    } else {
        Command::new(path)
    };
    command.stdin(Stdio::null());
    // What somebody set for their own clusters must not steer ours.
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("PG")) {
            command.env_remove(name);
        }
    }
    command
}

/// Runs a program to its end.
///
/// # Panics
/// With what it printed, when it fails.
pub(super) async fn run(name: &'static str, args: Vec<std::ffi::OsString>, folder: PathBuf) {
    let done = tokio::task::spawn_blocking(move || program(name).args(args).current_dir(folder).output());
    let output = match done.await.expect("the thread does not panic") {
        Ok(output) => output,
        Err(error) => panic!("cannot run {name}: {error}"),
    };
    assert!(
        output.status.success(),
        "{name} failed ({}):\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Gives `path` to the user that PostgreSQL's programs run as.
pub(super) fn hand_over(path: &Path) {
    if let Some((user, group)) = installed().user {
        os::unix::fs::chown(path, Some(user), Some(group))
            .unwrap_or_else(|error| panic!("cannot give {} to postgres: {error}", path.display()));
    }
}

fn installed() -> &'static Installed {
    static INSTALLED: OnceLock<Installed> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let bindir = candidates().into_iter().find(|folder| is_server(folder)).expect(MISSING);
        let user = rustix::process::geteuid().is_root().then(|| {
            let passwd = fs::read_to_string("/etc/passwd").expect("/etc/passwd can be read");
            account(&passwd, "postgres").expect("root needs the user postgres: `apt-get install postgresql`")
        });
        Installed { bindir, user }
    })
}

/// Folders that may hold the server's programs, best first.
fn candidates() -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = env::var_os(BINDIR).map(PathBuf::from).into_iter().collect();
    let mut versions: Vec<u32> = fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    versions.sort_unstable_by_key(|version| (*version == TESTED, *version));
    found.extend(versions.iter().rev().map(|version| format!("/usr/lib/postgresql/{version}/bin").into()));
    if let Ok(output) = Command::new("pg_config").arg("--bindir").output() {
        found.push(String::from_utf8_lossy(&output.stdout).trim().into());
    }
    found.extend(env::var_os("PATH").iter().flat_map(env::split_paths));
    found
}

fn is_server(folder: &Path) -> bool {
    ["initdb", "postgres", "pg_basebackup"].map(OsStr::new).iter().all(|name| folder.join(name).is_file())
}

/// User and group id of `name` in the text of a passwd file.
fn account(passwd: &str, name: &str) -> Option<(u32, u32)> {
    let mut fields =
        passwd.lines().map(|line| line.split(':')).find(|line| line.clone().next() == Some(name))?;
    // name : password : user : group : …
    Some((fields.nth(2)?.parse().ok()?, fields.next()?.parse().ok()?))
}
