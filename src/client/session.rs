//! The state of one watched copy over any number of streams, without IO: events in, a copy and wishes out.
//!
//! # What it decides
//!
//! *A stream alone proves nothing about age.* Events may stop because nothing happens or because nothing arrives,
//! and the two look the same. So only a checkpoint proves that carries the nonce of a confirmation which this
//! session asked for, on the same stream: the copy is complete as of `t0 - staleness`, where `t0` was read before
//! the confirmation was handed to the stream. The server read the confirmation after `t0`, and its checkpoint comes
//! after all that it had to send; so whatever was acknowledged before that moment has arrived. No other machine's
//! clock takes part.
//!
//! *A checkpoint is believed only if the copy agrees.* Its set digest is a sum over all that the copy should hold. If
//! the copy's own sum is another, one of the two is wrong, and nobody can tell which: the copy goes at once, nothing
//! is proven, and the next stream begins from the beginning. The same goes for everything else that a correct server
//! does not send: events out of the ledger's order, a revision that goes back, a snapshot that names an agent twice, a
//! checkpoint inside a snapshot. Patching up what is not understood is how caches come to lie.
//!
//! *A snapshot is built beside the old copy*, which serves on until `synced`: a registry that restarts its stream is
//! no reason to stop answering from what is still proven. The proof does not carry over to the new copy, which may
//! come from a node that lags behind the old one. After `history_diverged` the old copy goes at once: what it holds
//! may never have happened.
//!
//! *The proof outlives the stream.* That the copy was complete at a moment stays true when the connection is cut; it
//! only grows old, and readers judge by age. What does not outlive the stream is a nonce: an answer on another stream
//! says nothing of what was lost on this one.
//!
//! *One confirmation at a time.* A reader who wants a proof made after its arrival needs one that *starts* after it;
//! a thousand such readers need no more than the one that is under way and the next.
//!
//! Rejected: a timer that confirms all the time (it costs what nobody asked for, and a reader who wants a
//! linearizable answer has to wait for the next one anyway); and patching a copy by resolving the agents that are in
//! doubt (the position of the copy would no longer mean anything).
//!
//! # What it does not
//!
//! It opens no stream, waits for nothing, and reads no clock: `cache` does. It knows nothing of the wire either.

use std::sync::Arc;
use std::time::Duration;

use super::answer::Revision;
use super::copy::{Copy, Entry};
use crate::clock::Moment;
use crate::terms::{AgentName, Digest, Position, Reason, random_bytes};

/// What a stream says.
#[derive(Debug, Clone)]
pub(super) enum Event {
    /// A snapshot at this position follows, tombstones included, up to `Synced`.
    Reset { position: Position, diverged: bool },
    /// The agent has this card now.
    Upsert(Arc<Revision>),
    /// The agent has a card that is not sent.
    Moved { agent: AgentName, revision: u64, position: Position, raw_digest: Digest },
    /// The agent has no card any more.
    Retired { agent: AgentName, revision: u64, position: Position },
    /// Everything up to the position has come.
    Synced { position: Position },
    /// Everything up to the position has come, and this is the sum of it, as 64 hex digits.
    Checkpoint { position: Position, set_digest: String, answer: Option<Confirmed> },
    /// The last event.
    End(Option<Reason>),
}

/// The answer to a confirmation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Confirmed {
    pub(super) nonce: String,
    /// `None`: nothing is proven.
    pub(super) staleness: Option<Duration>,
}

/// What the owner of a session is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Told {
    /// There is a new whole copy.
    Synced(Position),
    /// An agent came to this revision: with a card, without one, or retired.
    Changed { agent: AgentName, revision: u64, retired: bool },
    /// A confirmation was answered, and the copy is proven.
    Proven,
    /// A confirmation was answered, and nothing is proven.
    Unproven,
    /// The stream is of no more use.
    Over(Over),
}

/// Why a stream is of no more use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Over {
    /// The server ended it.
    Ended(Option<Reason>),
    /// It said what it may not say. The copy is gone.
    Distrusted(String),
}

/// See the top of the file.
#[derive(Debug)]
pub(super) struct Session {
    name: Arc<str>,
    copy: Option<Copy>,
    snapshot: Option<Copy>,
    is_open: bool,
    /// The confirmation under way on this stream, and when it was asked for.
    pending: Option<(String, Moment)>,
    is_wanted: bool,
}

impl Session {
    /// `name` is shown as the node that answers from its copy.
    pub(super) fn new(name: Arc<str>) -> Self {
        Self { name, copy: None, snapshot: None, is_open: false, pending: None, is_wanted: false }
    }

    /// The whole copy, if there is one.
    pub(super) fn copy(&self) -> Option<&Copy> {
        self.copy.as_ref()
    }

    /// Where the next stream goes on; `None`: from the beginning.
    pub(super) fn resume_from(&self) -> Option<Position> {
        self.copy.as_ref().map(|copy| copy.position)
    }

    pub(super) fn opened(&mut self) {
        self.cut();
        self.is_open = true;
    }

    /// The stream is gone. The copy stays, and grows old.
    pub(super) fn cut(&mut self) {
        self.is_open = false;
        self.snapshot = None;
        if self.pending.take().is_some() {
            // Whoever waits for it still does.
            self.is_wanted = true;
        }
    }

    /// A stream could not be opened, or failed, for this reason.
    pub(super) fn refused(&mut self, reason: Reason) {
        self.cut();
        if matches!(reason, Reason::HistoryDiverged | Reason::PositionInFuture) {
            self.copy = None;
        }
    }

    /// Somebody wants a proof that starts from now on.
    pub(super) fn want_proof(&mut self) {
        self.is_wanted = true;
    }

    /// Whether a proof is wanted that is not under way.
    pub(super) fn is_wanting(&self) -> bool {
        self.is_wanted
    }

    /// A nonce to send now, if a proof is wanted and none is under way. `now` is read before it is sent.
    pub(super) fn next_confirm(&mut self, now: Moment) -> Option<String> {
        let ready = self.is_open && self.copy.is_some() && self.snapshot.is_none() && self.pending.is_none();
        if !ready || !std::mem::take(&mut self.is_wanted) {
            return None;
        }
        let nonce = hex::encode(random_bytes::<16>());
        self.pending = Some((nonce.clone(), now));
        Some(nonce)
    }

    /// When the confirmation under way was asked for.
    pub(super) fn pending_since(&self) -> Option<Moment> {
        self.pending.as_ref().map(|(_, asked)| *asked)
    }

    /// Takes one event.
    pub(super) fn receive(&mut self, event: Event) -> Option<Told> {
        match self.take(event) {
            Ok(told) => told,
            Err(why) => {
                self.cut();
                self.copy = None;
                Some(Told::Over(Over::Distrusted(why)))
            }
        }
    }

    fn take(&mut self, event: Event) -> Result<Option<Told>, String> {
        match event {
            Event::Reset { position, diverged } => {
                if diverged {
                    self.copy = None;
                }
                // A confirmation that was sent before is still answered after all of the snapshot.
                self.snapshot = Some(Copy::empty(position, Arc::clone(&self.name)));
                Ok(None)
            }
            Event::Upsert(revision) => {
                let (agent, position) = (revision.agent.clone(), revision.position);
                self.put(agent, position, Entry::Live(revision))
            }
            Event::Moved { agent, revision, position, raw_digest } => {
                self.put(agent, position, Entry::Bare { revision, raw_digest })
            }
            Event::Retired { agent, revision, position } => {
                self.put(agent, position, Entry::Retired { revision })
            }
            Event::Synced { position } => {
                let Some(mut snapshot) = self.snapshot.take() else {
                    // After a resume: all that followed the position has come.
                    return self.advance(position).map(|()| Some(Told::Synced(position)));
                };
                if position.seq < snapshot.position.seq {
                    return Err(format!("a snapshot at {} was synced at {position}", snapshot.position));
                }
                snapshot.moved_to(position);
                self.copy = Some(snapshot);
                Ok(Some(Told::Synced(position)))
            }
            Event::Checkpoint { position, set_digest, answer } => {
                self.checkpoint(position, &set_digest, answer)
            }
            Event::End(reason) => {
                match reason {
                    Some(reason) => self.refused(reason),
                    None => self.cut(),
                }
                Ok(Some(Told::Over(Over::Ended(reason))))
            }
        }
    }

    fn put(&mut self, agent: AgentName, position: Position, entry: Entry) -> Result<Option<Told>, String> {
        if let Some(snapshot) = &mut self.snapshot {
            if snapshot.get(&agent).is_some() {
                return Err(format!("{agent} is twice in one snapshot"));
            }
            if position.seq > snapshot.position.seq {
                return Err(format!("{agent} at {position} is in a snapshot at {}", snapshot.position));
            }
            snapshot.put(agent, entry);
            return Ok(None);
        }
        let copy = self.copy.as_mut().ok_or("an event came before a snapshot")?;
        if position.seq <= copy.position.seq {
            return Err(format!("an event at {position} came after {}", copy.position));
        }
        let revision = entry.revision();
        if let Some(held) = copy.get(&agent).map(Entry::revision).filter(|held| *held >= revision) {
            return Err(format!("revision {revision} of {agent} came after {held}"));
        }
        let retired = matches!(entry, Entry::Retired { .. });
        copy.put(agent.clone(), entry);
        copy.moved_to(position);
        Ok(Some(Told::Changed { agent, revision, retired }))
    }

    /// Everything up to `position` has come.
    fn advance(&mut self, position: Position) -> Result<(), String> {
        if self.snapshot.is_some() {
            return Err(format!("something of {position} came inside a snapshot"));
        }
        let copy = self.copy.as_mut().ok_or("something else came before a snapshot")?;
        let same = position.seq == copy.position.seq;
        if position.seq < copy.position.seq || (same && position != copy.position) {
            return Err(format!("{position} came after {}", copy.position));
        }
        copy.moved_to(position);
        Ok(())
    }

    fn checkpoint(
        &mut self,
        position: Position,
        set_digest: &str,
        answer: Option<Confirmed>,
    ) -> Result<Option<Told>, String> {
        self.advance(position)?;
        let Some(copy) = &mut self.copy else { return Ok(None) };
        let sum = copy.sum().to_string();
        if sum != set_digest {
            return Err(format!(
                "the copy at {position} adds up to {sum}, not {}",
                set_digest.escape_debug()
            ));
        }
        let Some(answer) = answer else { return Ok(None) };
        let Some((_, asked)) = self.pending.take_if(|(nonce, _)| *nonce == answer.nonce) else {
            return Err("a confirmation was answered that was not asked for".to_owned());
        };
        let Some(staleness) = answer.staleness else { return Ok(Some(Told::Unproven)) };
        let proven = asked.before(staleness);
        copy.asked = Some(asked);
        if copy.proven.is_none_or(|held| proven.at_or_after(&held)) {
            copy.proven = Some(proven);
        }
        Ok(Some(Told::Proven))
    }
}

#[cfg(test)]
mod tests;
