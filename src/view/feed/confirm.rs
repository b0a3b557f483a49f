//! What follows from what an authority said: a proof, a doubt, or a view that is loaded anew.

use std::time::Duration;

use tokio::time::Instant;

use super::super::freshness::contradicts;
use super::super::state::State;
use super::doubt::{Doubt, Judgement, judge};
use super::pending::Confirmation;
use super::{CATCH_UP, Feed, Which};
use crate::clock::Moment;
use crate::ledger::{Head, HeadReport, Reading};
use crate::terms::{Position, Tag};

/// The first pause before a doubt is asked about again.
const DOUBT_PAUSE: Duration = Duration::from_millis(20);

/// A source that held another history than the authority's is loaded from again after so many times the longest
/// pause before a session is opened: loading takes more.
const RELOAD_TIMES: u32 = 5;

impl Feed {
    fn asking_lane(&self) -> Which {
        if self.two_lanes() { Which::Authority } else { Which::Source }
    }

    /// What a source that is no authority says of itself when its session is opened.
    pub(super) fn meet(&mut self, session: Box<dyn Reading>, report: &HeadReport) {
        self.begin(&report.ledger_id);
        if report.ledger_id != self.state.ledger_id() {
            tracing::error!(
                source = report.ledger_id,
                authority = self.state.ledger_id(),
                "the store holds another ledger than the authority"
            );
            return self.fail(Which::Source);
        }
        self.rest(Which::Source, session, Duration::ZERO);
    }

    /// The first to say which ledger it is decides what the view begins with.
    fn begin(&mut self, ledger_id: &str) -> bool {
        let first = self.state.ledger_id().is_empty();
        if first {
            self.state = State::empty(ledger_id).keeping(self.settings.log);
            self.show();
            self.asked = None;
            self.epoch += 1;
        }
        first
    }

    pub(super) fn take_report(
        &mut self,
        session: Box<dyn Reading>,
        asked: Head,
        t0: Moment,
        report: &HeadReport,
    ) {
        let lane = self.asking_lane();
        let confirmed = self.asked.take();
        if report.in_recovery {
            self.metrics.confirm_failures.inc();
            tracing::warn!("the database is in recovery: it is no authority");
            return self.fail(lane);
        }
        // What a view without a ledger asked about is of no ledger.
        if !self.begin(&report.ledger_id)
            && let Err(contradiction) = contradicts(self.state.ledger_id(), asked, report)
        {
            let direct = !self.two_lanes() && report.hops == 0;
            let patience = self.settings.patience;
            let judgement = judge(&contradiction, report, direct, self.doubt.as_ref(), &t0, patience);
            return match judgement {
                Judgement::Reload => {
                    self.reload(&report.ledger_id, report.head.position(), &contradiction.to_string());
                    self.rest(lane, session, Duration::ZERO);
                }
                Judgement::AskAgain => {
                    let pause = self.start_to_doubt(asked, t0, &contradiction.to_string());
                    self.rest(lane, session, pause);
                }
            };
        }
        if self.doubt.take().is_some() {
            tracing::info!(position = %asked.position(), "the authority has what it did not have before");
            self.publish();
        }
        let moved = self.authority_head.replace(report.head.seq) != Some(report.head.seq);
        let behind = report.head.seq.saturating_sub(self.state.head().seq);
        self.metrics.head_minus_applied.set(i64::try_from(behind).unwrap_or(i64::MAX));
        self.view.set_authority_head(report.head.seq);
        self.state.take_service(report.service);
        if let Some(confirmed) = confirmed.filter(|state| state.head().seq > self.shown.head().seq) {
            self.shown = confirmed;
            self.publish_shown();
        }
        if report.age.is_some() || !self.two_lanes() {
            self.pending.push(Confirmation::new(t0, report));
        } else {
            self.metrics.confirm_failures.inc();
        }
        if !self.two_lanes() {
            return self.settle_and_go_on(session);
        }
        if let Some(authority) = &mut self.authority {
            authority.thrive();
        }
        if self.settle().is_err() {
            return self.rest(lane, session, Duration::ZERO);
        }
        if behind > 0 && moved {
            self.catch_up = CATCH_UP;
            let at = self.reload_at.max(Instant::now());
            self.source.wake(at);
        }
        self.rest(lane, session, self.settings.poll);
    }

    /// Goes on over the one session there is: with a proof, or with reading what is missing for it.
    pub(super) fn settle_and_go_on(&mut self, session: Box<dyn Reading>) {
        match self.settle() {
            Err(()) => self.rest(Which::Source, session, Duration::ZERO),
            Ok(false) => self.read(session),
            Ok(true) if Instant::now() >= self.liveness_due && self.loaded => self.read_liveness(session),
            Ok(true) => self.rest(Which::Source, session, self.settings.poll),
        }
    }

    /// Takes every confirmation whose head the view has reached, and proves the view by the newest of them.
    /// Whether there was one.
    ///
    /// # Errors
    /// One contradicts the view, which is then being loaded anew.
    pub(super) fn settle(&mut self) -> Result<bool, ()> {
        let mut newest = None;
        while let Some(reached) = self.pending.reached(self.state.head().seq) {
            let head = reached.head;
            if self.state.tag_at(head.seq) != Some(Tag::from(&head.digest)) {
                let ledger_id = self.state.ledger_id().to_owned();
                self.reload(&ledger_id, head.position(), "its digest at the authority's head is another");
                return Err(());
            }
            newest = Some(reached);
        }
        let Some(newest) = newest else { return Ok(false) };
        if self.shown.head().seq < newest.head.seq {
            self.show();
        }
        self.prove(&newest);
        Ok(true)
    }

    fn prove(&mut self, seen: &Confirmation) {
        let Some(proof) = seen.proof else {
            // An upstream that is not proven itself: there is nothing to prove.
            self.metrics.confirm_failures.inc();
            self.load_unproven();
            return;
        };
        if self.proof.is_none_or(|before| proof.at.at_or_after(&before.at)) {
            self.proof = Some(proof);
        }
        self.loaded = true;
        self.ready = true;
        self.unsupported = false;
        self.reload_pause = Duration::ZERO;
        self.source.thrive();
        self.metrics.confirm_seconds.observe(self.clock.now().since(&seen.t0).as_secs_f64());
        self.publish();
    }

    /// Shows a first state that is complete by what its source says, and proven by nobody.
    pub(super) fn load_unproven(&mut self) {
        if !self.loaded && self.generation == 0 {
            self.loaded = true;
            self.show();
            self.publish();
        }
    }

    /// Proves nothing until the authority has what it did not have. Gives the pause before it is asked again.
    fn start_to_doubt(&mut self, asked: Head, t0: Moment, why: &str) -> Duration {
        self.metrics.confirm_failures.inc();
        self.demanded = true;
        let most = self.settings.poll.max(DOUBT_PAUSE);
        if let Some(doubt) = &mut self.doubt {
            doubt.pause = (doubt.pause * 2).min(most);
            return doubt.pause;
        }
        tracing::warn!(position = %asked.position(), why, "the authority contradicts the view; asking again");
        self.doubt = Some(Doubt { asked, since: t0, pause: DOUBT_PAUSE });
        self.pending.clear();
        self.publish();
        DOUBT_PAUSE
    }

    /// Starts a new generation: unproven at once, then loaded from the beginning.
    fn reload(&mut self, ledger_id: &str, authority: Position, why: &str) {
        tracing::error!(
            held = %self.state.position(), %authority, why,
            "the history has diverged: the view is loaded anew"
        );
        self.metrics.reloads.inc();
        self.metrics.confirm_failures.inc();
        self.generation += 1;
        self.epoch += 1;
        self.proof = None;
        self.loaded = false;
        self.doubt = None;
        self.publish();
        self.view.set_authority_head(0);
        self.state = State::empty(ledger_id).keeping(self.settings.log);
        self.show();
        self.asked = None;
        self.pending.clear();
        self.liveness_behind = false;
        self.unsupported = false;
        self.liveness_since = None;
        self.liveness_due = Instant::now();
        if self.two_lanes() {
            self.authority_head = Some(authority.seq);
            self.reload_at = Instant::now() + self.reload_pause;
            let first = self.settings.backoff;
            self.reload_pause = (self.reload_pause * 2).clamp(first, first * RELOAD_TIMES);
            self.catch_up = CATCH_UP;
            self.source.wake(self.reload_at);
        }
    }
}
