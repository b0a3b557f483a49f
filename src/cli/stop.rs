//! When a server in this process is to stop: at SIGTERM or Ctrl-C, and at once at the second.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

use super::failure::{Failure, failed};

/// The signals that end a server.
#[derive(Debug)]
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(super) fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| failed(format!("cannot listen for signals: {error}")));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Ends at the next of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }

    /// Cancels `stop` at the first, and ends at the second.
    pub(super) async fn twice(&mut self, stop: &CancellationToken) {
        self.next().await;
        stop.cancel();
        self.next().await;
    }
}
