//! Temporary folders whose processes die with them.
//!
//! All folders lie below one root per test program. A small shell, the warden, holds the reading end of a
//! pipe that only this program can write to. However the program ends, by SIGKILL too, the pipe closes, and
//! the warden kills whatever still works below the root, frozen processes included, and removes it. A
//! parent-death signal would not do: it fires when the *thread* that forked ends, and tests are threads.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{env, fs};

use super::processes;

/// Waits for the end of its input, then kills by working folder until a round finds nobody, then removes.
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
rm -rf "$root"
"#;

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
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let path = root().join(format!("{label}-{}", NEXT.fetch_add(1, Ordering::Relaxed)));
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

/// The folder that holds all others, made and put under the warden's eye at first use.
fn root() -> &'static Path {
    static ROOT: OnceLock<Root> = OnceLock::new();
    &ROOT
        .get_or_init(|| {
            let path = tempfile::Builder::new()
                .prefix("cardfence-test-")
                .tempdir()
                .unwrap_or_else(|error| {
                    panic!("cannot create a folder in {}: {error}", env::temp_dir().display())
                })
                .keep();
            // Working folders are read back without symbolic links.
            let path = path.canonicalize().expect("a folder just made can be resolved");
            // When root runs the tests, user `postgres` must be able to enter.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))
                .expect("our own folder can be opened");
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
            Root { path, _warden: warden }
        })
        .path
}
