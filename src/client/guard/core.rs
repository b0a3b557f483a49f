//! What the clones of a guard share: whom it asks, whom it tells, and what it keeps of either's answer.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use super::Settings;
use super::known::{Known, Standing};
use super::observe::{Event, Observer};
use super::reports::{Report, Reported, Reports};
use crate::client::answer::{self, Ask, Discovery, Resolved};
use crate::clock::Moment;
use crate::fence::Fence;
use crate::terms::MaxStaleness;

#[derive(Debug)]
pub(super) struct Core<D, R> {
    pub(super) discovery: Arc<D>,
    pub(super) reports: Arc<R>,
    pub(super) settings: Settings,
    pub(super) known: Known,
    pub(super) observer: Observer,
}

/// When a question was asked, and of which history.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) at: Moment,
    history: u64,
}

type Read = Result<Resolved, answer::Error>;

impl<D: Discovery, R: Reports> Core<D, R> {
    /// The moment of a question that is about to be asked.
    pub(super) fn asks(&self) -> Asked {
        let history = self.discovery.history();
        self.known.of_history(history);
        Asked { at: self.settings.clock.now(), history }
    }

    /// Keeps what was just read, unless it is suspect.
    pub(super) fn adopt(&self, resolved: &Resolved, asked: &Asked) -> Standing {
        let history = self.discovery.history();
        self.known.of_history(history);
        let keep = history == asked.history;
        let standing = self.known.adopt(resolved, keep, &asked.at, &self.settings.clock.now());
        if standing == Standing::Released {
            let agent = resolved.revision.agent.clone();
            let content_digest = resolved.card().content_digest();
            self.observer.tell(Event::Released { agent, content_digest });
        }
        standing
    }

    /// What is kept of a read that was just made on evidence, and of the report that was sent beside it.
    fn has_read(&self, asked: &Asked, report: &Report, read: &Read, reported: Result<Reported, String>) {
        let (agent, content_digest) = (report.agent.clone(), report.content_digest);
        self.observer.tell(match reported {
            Ok(Reported::Taken) => Event::DriftReported { agent: agent.clone(), content_digest },
            Ok(Reported::Unsupported) => Event::DriftUnsupported { agent: agent.clone() },
            Err(cause) => Event::DriftFailed { agent: agent.clone(), cause },
        });
        self.observer.tell(match read {
            Ok(fresh) => {
                self.adopt(fresh, asked);
                Event::Refetched { agent, revision: fresh.revision.number }
            }
            Err(error) => Event::RefetchFailed { agent, cause: error.to_string() },
        });
    }
}

impl<D: Discovery + 'static, R: Reports + 'static> Core<D, R> {
    /// Reads the agent as it is now, and tells the registry what was found. Does not keep the guard alive: what is kept
    /// there for others to share must not be what keeps it.
    pub(super) fn reread(
        core: &Arc<Self>,
        report: Report,
    ) -> impl Future<Output = Option<Resolved>> + Send + use<D, R> {
        let (discovery, reports) = (Arc::clone(&core.discovery), Arc::clone(&core.reports));
        let (clock, within, core) =
            (core.settings.clock.clone(), core.settings.report_within, Arc::downgrade(core));
        async move {
            let asked = Asked { at: clock.now(), history: discovery.history() };
            let fence =
                Fence { max_staleness: Some(MaxStaleness::Within(Duration::ZERO)), ..Fence::default() };
            let ask = Ask { origin: true, ..Ask::new(&report.agent, &fence) };
            let reported = timeout(within, reports.report(&report));
            let (read, reported) = futures::join!(discovery.discover(ask), reported);
            let reported = match reported {
                Ok(outcome) => outcome.map_err(|error| error.to_string()),
                Err(_) => Err("no answer in time".to_owned()),
            };
            core.upgrade()?.has_read(&asked, &report, &read, reported);
            read.ok()
        }
    }
}
