//! One session with one server: what it is doing, and when it goes on.
//!
//! A lane knows nothing of what is asked over it. It keeps the session between exchanges, waits for its next
//! turn, and opens another session, after a growing pause, when one has failed: nothing is kept of a failed one.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::clock::Moment;
use crate::ledger::{Entries, Error, Head, HeadReport, Liveness, Page, Reading};

/// The first pause before a session is opened again.
const FIRST_PAUSE: Duration = Duration::from_millis(25);

/// What an exchange brought back, with the session that made it; an error ends the session.
pub(super) enum Brought {
    Session(Box<dyn Reading>),
    Head { session: Box<dyn Reading>, asked: Head, t0: Moment, report: HeadReport },
    Page { session: Box<dyn Reading>, page: Page },
    Liveness { session: Box<dyn Reading>, rows: Vec<Liveness> },
}

pub(super) type Exchange = Pin<Box<dyn Future<Output = Result<Brought, Error>> + Send>>;

/// Why a lane wants attention.
pub(super) enum Event {
    /// Its pause is over: it is to be given an exchange.
    Due,
    Brought(Result<Brought, Error>),
}

enum Doing {
    Exchange(Exchange),
    Rest(Box<dyn Reading>),
    /// There is no session.
    Closed,
}

pub(super) struct Lane {
    entries: Arc<dyn Entries>,
    doing: Doing,
    /// While it rests or is closed: until when.
    until: Instant,
    /// Before a session is opened again.
    pause: Duration,
    /// Of the view when the exchange in flight was begun: an answer to an earlier one is dropped.
    pub(super) epoch: u64,
}

impl Lane {
    pub(super) fn new(entries: Arc<dyn Entries>) -> Self {
        Self { entries, doing: Doing::Closed, until: Instant::now(), pause: Duration::ZERO, epoch: 0 }
    }

    pub(super) fn entries(&self) -> Arc<dyn Entries> {
        Arc::clone(&self.entries)
    }

    /// The next event; safe to drop and to call again.
    pub(super) async fn next(&mut self) -> Event {
        if let Doing::Exchange(exchange) = &mut self.doing {
            let brought = exchange.await;
            self.doing = Doing::Closed;
            return Event::Brought(brought);
        }
        tokio::time::sleep_until(self.until).await;
        Event::Due
    }

    /// Whether it has a session that is free.
    pub(super) fn rests(&self) -> bool {
        matches!(self.doing, Doing::Rest(_))
    }

    /// The session, if it rests; the lane is then to be given an exchange.
    pub(super) fn take_session(&mut self) -> Option<Box<dyn Reading>> {
        match std::mem::replace(&mut self.doing, Doing::Closed) {
            Doing::Rest(session) => Some(session),
            Doing::Exchange(_) | Doing::Closed => None,
        }
    }

    pub(super) fn start(&mut self, exchange: Exchange, epoch: u64) {
        self.doing = Doing::Exchange(exchange);
        self.epoch = epoch;
    }

    /// Keeps the session until it is due again.
    pub(super) fn rest(&mut self, session: Box<dyn Reading>, until: Instant) {
        self.doing = Doing::Rest(session);
        self.until = until;
    }

    /// Ends a rest by `until`; a session that is to be opened keeps its pause.
    pub(super) fn wake(&mut self, until: Instant) {
        if self.rests() {
            self.until = self.until.min(until);
        }
    }

    /// Drops the session; the next one is opened after a pause that grows up to `most`.
    pub(super) fn fail(&mut self, most: Duration) {
        self.pause = (self.pause * 2).max(FIRST_PAUSE).min(most);
        self.doing = Doing::Closed;
        self.until = Instant::now() + jittered(self.pause);
    }

    /// The session is good: the next failure is the first again.
    pub(super) fn thrive(&mut self) {
        self.pause = Duration::ZERO;
    }
}

/// From half of `pause` to all of it, so that those who lost one server do not come back in step.
fn jittered(pause: Duration) -> Duration {
    let mut random = [0; 2];
    if getrandom::fill(&mut random).is_err() {
        return pause;
    }
    pause.mul_f64(0.5 + f64::from(u16::from_le_bytes(random)) / 131_072.0)
}
