//! Temporary folders whose processes die with them.
//!
//! All folders lie below one root per test program. A small shell, the warden, holds the reading end of a
//! pipe that only this program can write to. However the program ends, by SIGKILL too, the pipe closes, and
//! the warden kills whatever still works below the root, frozen processes included, and removes it. A
//! parent-death signal would not do: it fires when the *thread* that forked ends, and tests are threads.
//!
//! The root is in memory where there is room. What a killed process has written survives in memory as it
//! does in the page cache over a disk, so nothing is lost that these tests could see; and recovery, which
//! syncs every file of a cluster, takes 0.2 s instead of up to 6 s (measured). Whoever measures the cost of
//! a commit asks for [`Scratch::on_disk`].

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

use super::processes;

/// Waits for the end of its input, then kills by working folder until a round finds nobody, then removes:
/// the shared memory that killed PostgreSQL servers leave in the system (see `Cluster`), and the folder.
const WARDEN: &str = r#"
trap '' INT TERM HUP
root=$1
cat >/dev/null
found=1
while [ -n "$found" ]; do
  found=
  for process in /proc/[0-9]*; do
    case "$(readlink "$process/cwd")" in
      "$root"/*) kill -KILL "${process#/proc/}" && found=1 ;;
    esac
  done
done 2>/dev/null
for lock in "$root"/*/data/postmaster.pid; do
  segment=$(sed -n '7s/.* //p' "$lock") && ipcrm -m "$segment"
done 2>/dev/null
rm -rf "$root"
"#;

/// The file system in memory, and how much of it must be free for a run of all tests.
const MEMORY: &str = "/dev/shm";
const MEMORY_BYTES: u64 = 4 << 30;

#[derive(Debug)]
struct Root {
    path: PathBuf,
    /// Held for its standard input, which closes when this program ends.
    _warden: Child,
}

/// A temporary folder. Dropping it kills the processes that work in it and removes it.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new empty folder; `label` is part of its name, for whoever looks at a process list.
    pub(crate) fn new(label: &str) -> Self {
        static ROOT: OnceLock<Root> = OnceLock::new();
        let root =
            ROOT.get_or_init(|| Root::new(if memory_has_room() { MEMORY.into() } else { env::temp_dir() }));
        Self::below(root, label)
    }

    /// As [`Scratch::new`], on the disk that holds the system's temporary folder.
    pub(crate) fn on_disk(label: &str) -> Self {
        static ROOT: OnceLock<Root> = OnceLock::new();
        Self::below(ROOT.get_or_init(|| Root::new(env::temp_dir())), label)
    }

    fn below(root: &Root, label: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = root.path.join(format!("{label}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
        fs::create_dir(&path).unwrap_or_else(|error| panic!("cannot create {}: {error}", path.display()));
        Self { path }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        processes::kill(&self.path);
        if let Err(error) = fs::remove_dir_all(&self.path) {
            super::report(&format!("cannot remove {}: {error}", self.path.display()));
        }
    }
}

impl Root {
    /// Makes the folder that holds all others, and puts it under a warden's eye.
    fn new(parent: PathBuf) -> Self {
        let path = tempfile::Builder::new()
            .prefix("cardfence-test-")
            .tempdir_in(&parent)
            .unwrap_or_else(|error| panic!("cannot create a folder in {}: {error}", parent.display()))
            .keep();
        // Working folders are read back without symbolic links.
        let path = path.canonicalize().expect("a folder just made can be resolved");
        // When root runs the tests, user `postgres` must be able to enter.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("our own folder can be opened");
        let warden = Command::new("sh")
            .args(["-c", WARDEN, "warden"])
            .arg(&path)
            .current_dir("/")
            .stdin(Stdio::piped())
            // An inherited pipe would make whoever reads our output wait for the warden.
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C on the terminal ends the tests, not the one that cleans up after them.
            .process_group(0)
            .spawn()
            .expect("a shell can be started");
        Self { path, _warden: warden }
    }
}

fn memory_has_room() -> bool {
    let free = Command::new("df").args(["--output=avail", "--block-size=1", MEMORY]).output();
    let free = free.ok().and_then(|output| {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().nth(1)?.trim().parse::<u64>().ok()
    });
    free.is_some_and(|free| free >= MEMORY_BYTES)
}
