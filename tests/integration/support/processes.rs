//! Signals to processes, found by the folder they work in.
//!
//! PostgreSQL's children each lead a process group of their own, and lose their parent when the postmaster
//! is killed: neither group nor parent names them all. But every one of them works in the data folder, from
//! its fork to its end, so the folder names them (Linux only, by `/proc`).

use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, thread};

pub(crate) use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

/// How long a killed process may take to be gone: one that is in the middle of a write to disk finishes it.
const GONE_WITHIN: Duration = Duration::from_secs(30);

/// The ids of all living processes whose working folder is `folder` or lies in it.
pub(crate) fn inside(folder: &Path) -> Vec<u32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        // A zombie has no working folder any more, so it is not counted as living.
        .filter(|pid| fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder)))
        .collect()
}

/// Sends `signal`; one to a process that has ended meanwhile is lost, as in life.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("a process id is positive");
    match kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("cannot signal process {}: {error}", pid.as_raw_nonzero()),
    }
}

/// Stops (SIGSTOP) every process in `folder` and returns once all of them stand still. `first` is stopped
/// before the others, so that it forks no more.
pub(crate) fn freeze(folder: &Path, first: Option<u32>) {
    if let Some(pid) = first {
        signal(pid, Signal::STOP);
    }
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        let moving: Vec<u32> = inside(folder).into_iter().filter(|pid| !is_stopped(*pid)).collect();
        if moving.is_empty() {
            return;
        }
        assert!(Instant::now() < deadline, "processes {moving:?} in {} do not stop", folder.display());
        for pid in moving {
            signal(pid, Signal::STOP);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Lets every process in `folder` go on (SIGCONT).
pub(crate) fn thaw(folder: &Path) {
    for pid in inside(folder) {
        signal(pid, Signal::CONT);
    }
}

/// Kills (SIGKILL) every process in `folder` and returns once none is left.
pub(crate) fn kill(folder: &Path) {
    let deadline = Instant::now() + GONE_WITHIN;
    loop {
        let living = inside(folder);
        if living.is_empty() {
            return;
        }
        // Called from destructors, where a panic on top of a test's own would hide that one.
        if Instant::now() > deadline {
            super::report(&format!("processes {living:?} in {} outlive SIGKILL", folder.display()));
            return;
        }
        for pid in living {
            signal(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the process stands still: stopped by a signal, or already gone.
pub(crate) fn is_stopped(pid: u32) -> bool {
    let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { return true };
    // `pid (name) state …`; the name may hold anything, a parenthesis too.
    let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
    matches!(state, Some('T' | 'Z' | 'X'))
}
