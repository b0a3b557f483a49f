//! The one task of a cache: opens streams, feeds the session, publishes its copies.
//!
//! Owns time and the stream, and decides nothing about what is proven: the session does. A stream that is silent, or
//! that leaves a confirmation unanswered, is given up; another is opened after a jittered pause, for as long as the
//! cache lives. Invariant: whenever the session's copy changes, the readers' pointer follows before anything is
//! waited for.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::answer::Error;
use super::cache::{Event as Happened, Selection, Shared};
use super::retry::chance;
use super::session::{Event, Over, Session, Told};
use crate::terms::Position;

/// Events taken from a stream before the readers' pointer follows. Bounds how far it lags in a burst.
const BURST: usize = 64;
/// After a confirmation that proved nothing the next one waits so long: the registry has waited for its own already.
const AFTER_NOTHING: Duration = Duration::from_millis(100);

/// Opens watch streams.
pub(super) trait Source: Send + Sync + 'static {
    fn open(
        &self,
        selection: &Selection,
        from: Option<Position>,
    ) -> BoxFuture<'static, Result<Subscription, Error>>;
}

/// An open stream.
pub(super) struct Subscription {
    /// Takes the nonces of confirmations.
    pub(super) confirms: mpsc::Sender<String>,
    pub(super) events: BoxStream<'static, Result<Event, Error>>,
}

/// Runs until `stop`; `wishes` are readers' for a proof.
pub(super) async fn run(
    shared: Arc<Shared>,
    source: impl Source,
    mut wishes: mpsc::Receiver<()>,
    stop: CancellationToken,
) {
    let mut session = Session::new("watched copy".into());
    let mut attempt = 0;
    loop {
        let why = tokio::select! {
            () = stop.cancelled() => break,
            why = follow(&shared, &source, &mut session, &mut wishes, &mut attempt) => why,
        };
        session.cut();
        shared.is_open.store(false, Ordering::Release);
        publish(&shared, &session);
        shared.teller.tell(if session.copy().is_some() {
            Happened::Lost { why }
        } else {
            Happened::Dropped { why }
        });
        attempt += 1;
        tokio::select! {
            () = stop.cancelled() => break,
            () = sleep(shared.settings.retry.backoff(attempt, chance())) => {}
        }
    }
    shared.is_open.store(false, Ordering::Release);
    shared.looks.send_replace(());
    shared.teller.tell(Happened::Ended);
}

/// One stream, from its opening to why it is of no more use.
async fn follow(
    shared: &Shared,
    source: &impl Source,
    session: &mut Session,
    wishes: &mut mpsc::Receiver<()>,
    attempt: &mut u32,
) -> String {
    let settings = &shared.settings;
    let from = session.resume_from();
    let opened = timeout(settings.silence, source.open(&settings.selection, from)).await;
    let Subscription { confirms, events } = match opened {
        Ok(Ok(subscription)) => subscription,
        Ok(Err(error)) => return failed(shared, session, &error),
        Err(_) => return "it could not be opened in time".to_owned(),
    };
    session.opened();
    shared.is_open.store(true, Ordering::Release);
    shared.teller.tell(Happened::Connected);
    // What comes at once is taken at once, and the readers' pointer follows once.
    let mut events = events.ready_chunks(BURST);
    let mut not_before = Instant::now();
    loop {
        let silent_at = Instant::now() + settings.silence;
        // A confirmation that is due is sent before anything else is waited for.
        if Instant::now() >= not_before
            && let Some(nonce) = session.next_confirm(settings.clock.now())
            && confirms.try_send(nonce).is_err()
        {
            return "it takes no more confirmations".to_owned();
        }
        let overdue = session.pending_since().map(|asked| {
            Instant::now() + settings.confirm_within.saturating_sub(settings.clock.now().since(&asked))
        });
        tokio::select! {
            burst = events.next() => {
                let Some(burst) = burst else { return "it ended".to_owned() };
                for event in burst {
                    let event = match event {
                        Ok(event) => event,
                        Err(error) => return failed(shared, session, &error),
                    };
                    match session.receive(event) {
                        None => {}
                        Some(Told::Over(over)) => return ended(shared, session, over),
                        Some(Told::Unproven) => {
                            // Whoever waits asks again.
                            not_before = Instant::now() + AFTER_NOTHING;
                            session.want_proof();
                        }
                        Some(told) => {
                            *attempt = 0;
                            tell(shared, told);
                        }
                    }
                }
                publish(shared, session);
            }
            wish = wishes.recv() => match wish {
                Some(()) => session.want_proof(),
                None => return "nobody reads any more".to_owned(),
            },
            () = sleep_until(not_before), if session.is_wanting() && Instant::now() < not_before => {}
            () = until(overdue) => return "a confirmation was not answered in time".to_owned(),
            () = sleep_until(silent_at) => return "nothing came for too long".to_owned(),
        }
    }
}

/// The readers' pointer follows the session.
fn publish(shared: &Shared, session: &Session) {
    shared.copy.store(session.copy().cloned().map(Arc::new));
    shared.looks.send_replace(());
}

fn tell(shared: &Shared, told: Told) {
    shared.teller.tell(match told {
        Told::Synced(position) => Happened::Synced(position),
        Told::Changed { agent, revision, retired } => Happened::Changed { agent, revision, retired },
        Told::Proven | Told::Unproven | Told::Over(_) => return,
    });
}

fn failed(shared: &Shared, session: &mut Session, error: &Error) -> String {
    if let Some(reason) = error.reason() {
        refused(shared, session, |session| session.refused(reason));
    }
    error.to_string()
}

fn ended(shared: &Shared, session: &Session, over: Over) -> String {
    if session.copy().is_none() {
        shared.lost_histories.fetch_add(1, Ordering::AcqRel);
    }
    match over {
        Over::Ended(Some(reason)) => format!("it was ended: {reason}"),
        Over::Ended(None) => "it was ended".to_owned(),
        Over::Distrusted(why) => format!("it cannot be trusted: {why}"),
    }
}

/// Lets the session know, and counts a history that was lost by it.
fn refused(shared: &Shared, session: &mut Session, act: impl FnOnce(&mut Session)) {
    let had = session.copy().is_some();
    act(session);
    if had && session.copy().is_none() {
        shared.lost_histories.fetch_add(1, Ordering::AcqRel);
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => pending().await,
    }
}
