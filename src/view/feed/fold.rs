//! What follows from entries: the state moves, and what the authority has confirmed of it is shown.

use tokio::time::Instant;

use super::super::state::{FoldError, State};
use super::{Feed, Which};
use crate::ledger::chain::Broken;
use crate::ledger::writer::Committed;
use crate::ledger::{Entry, LIVENESS_PAGE, Liveness, Page, Reading, Snapshot};
use crate::terms::Tag;

/// What a page came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Folded {
    /// The source has no more.
    Nothing,
    Moved,
    /// The source has more than the authority.
    Beyond,
}

impl Feed {
    pub(super) fn take_page(&mut self, session: Box<dyn Reading>, page: Page) {
        let folded = match page {
            Page::Entries(entries) if entries.is_empty() && !self.two_lanes() => {
                tracing::warn!("the ledger has a head but not the entries up to it");
                return self.fail(Which::Source);
            }
            Page::Entries(entries) => self.fold_all(entries),
            Page::Snapshot(snapshot) => self.start_over(*snapshot).map(|()| Folded::Moved),
        };
        let folded = match folded {
            Ok(folded) => folded,
            Err(error) => return self.stumble(&error),
        };
        if !self.two_lanes() {
            self.show();
            // While loading nobody sees half a ledger.
            self.publish_shown();
            return self.settle_and_go_on(session);
        }
        self.source.thrive();
        if self.authority_head.is_none() {
            self.show();
        }
        self.publish_shown();
        if self.settle().is_err() {
            return self.rest(Which::Source, session, std::time::Duration::ZERO);
        }
        match folded {
            Folded::Moved => self.read(session),
            Folded::Beyond => {
                // The authority has it, too, or will soon.
                self.asking().wake(Instant::now());
                self.rest(Which::Source, session, self.settings.poll);
            }
            Folded::Nothing => {
                self.load_unproven();
                let waited_for = self.authority_head.is_some_and(|head| head > self.state.head().seq);
                let pause = if waited_for { self.catch_up } else { self.settings.poll };
                self.catch_up = (self.catch_up * 2).min(self.settings.poll);
                self.rest(Which::Source, session, pause);
            }
        }
    }

    /// An entry read from the ledger could not be folded.
    fn stumble(&mut self, error: &FoldError) {
        self.metrics.confirm_failures.inc();
        if error.is_final() {
            if !self.unsupported {
                tracing::error!(%error, "the view stops here: it is not proven any more");
                self.unsupported = true;
                self.publish();
            }
        } else {
            tracing::error!(%error, "the ledger does not follow from the view; asking again");
        }
        self.fail(Which::Source);
    }

    fn fold_all(&mut self, entries: Vec<Entry>) -> Result<Folded, FoldError> {
        let most = self.authority_head.filter(|_| self.two_lanes());
        let mut folded = Folded::Nothing;
        for entry in entries {
            let seq = entry.seq;
            // Own commits may have been folded while the page was on its way.
            if seq <= self.state.head().seq {
                continue;
            }
            if most.is_some_and(|most| seq > most) {
                return Ok(Folded::Beyond);
            }
            self.state.fold(entry)?;
            folded = Folded::Moved;
            // What the authority saw is what is shown, and nothing after it.
            if self.two_lanes() && self.pending.saw(&self.state.head()) {
                self.show();
            }
        }
        Ok(folded)
    }

    /// Goes on from a snapshot, which is of the same history as long as nothing says otherwise.
    fn start_over(&mut self, snapshot: Snapshot) -> Result<(), FoldError> {
        let held = self.state.head();
        let state = State::restore(snapshot)?.keeping(self.settings.log);
        if state.tag_at(held.seq) != Some(Tag::from(&held.digest)) {
            return Err(FoldError::Broken(Broken::Link { seq: held.seq }));
        }
        state.take_service(self.state.service());
        self.state = state;
        self.metrics.snapshots_taken.inc();
        self.liveness_since = None;
        self.liveness_due = Instant::now();
        Ok(())
    }

    pub(super) fn fold_own(&mut self, committed: Committed) {
        if !self.loaded || self.unsupported || self.doubt.is_some() {
            return;
        }
        let before = self.state.head().seq;
        let all_shown = self.shown.head() == self.state.head();
        for entry in committed.entries {
            if entry.seq <= self.state.head().seq {
                continue;
            }
            if let Err(error) = self.state.fold(entry) {
                tracing::debug!(%error, "a commit of this node does not follow from the view yet");
                self.demand.notify_one();
                break;
            }
        }
        // Before anyone sees the new revisions: their leases come with them.
        self.learn(&committed.liveness);
        if self.state.head().seq > before {
            // What stayed back before it is to be confirmed first.
            if all_shown {
                self.show();
                self.publish();
            } else {
                self.demand.notify_one();
            }
        }
    }

    /// Takes rows of the liveness table. They are of no position, so what is shown learns of them too.
    fn learn(&mut self, rows: &[Liveness]) {
        for row in rows {
            self.state.take_liveness(row);
            self.shown.take_liveness(row);
        }
    }

    pub(super) fn take_liveness(&mut self, session: Box<dyn Reading>, rows: &[Liveness]) {
        // One page between two proofs, so that a large table does not hold proofs up.
        self.liveness_behind = rows.len() >= LIVENESS_PAGE;
        self.learn(rows);
        let newest = rows.iter().map(|row| row.origin_confirmed_at).max();
        self.liveness_since = self.liveness_since.max(newest);
        let now = Instant::now();
        self.liveness_due = if self.liveness_behind { now } else { now + self.settings.liveness };
        if self.two_lanes() {
            return self.read(session);
        }
        self.rest(Which::Source, session, self.settings.poll);
    }

    /// Publishes if there is something to see.
    pub(super) fn publish_shown(&self) {
        if self.loaded && self.shown.head() != self.view.load().state.head() {
            self.publish();
        }
    }
}
