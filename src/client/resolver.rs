//! Asks a registry over gRPC, each time.
//!
//! Owns what a careful caller does around one call: it adds its own round trip to the age of the answer, asks for no
//! less than the highest position it has seen (so that two reads through a balancer never go back in time), and
//! repeats what failed only where the table of reasons says that repeating helps, within one deadline.
//!
//! Holds no card: whoever wants to keep one hands it in again as [`Ask::held`], and its bytes are not sent again.

use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Request;
use tonic::transport::{Channel, Endpoint};

use super::answer::{Ask, Discovery, Error, Refusal, Resolved};
use super::convert;
use super::retry::{Retry, chance};
use crate::clock::{Clock, Moment};
use crate::fence::Fence;
use crate::proto::MESSAGE_MAX;
use crate::proto::v1::registry_client::RegistryClient;
use crate::proto::v1::{BatchResolveResponse, Resolved as SentResolved, batch_item};
use crate::terms::{AgentName, MaxStaleness, Position, Reason};

/// How a resolver asks.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The longest that one question may take, all attempts and pauses included.
    pub deadline: Duration,
    pub retry: Retry,
    pub clock: Clock,
}

impl Default for Settings {
    fn default() -> Self {
        Self { deadline: Duration::from_secs(5), retry: Retry::default(), clock: Clock::System }
    }
}

/// Resolves agents through a registry. Cheap to clone; clones share the connection and the highest position.
///
/// ```no_run
/// use std::time::Duration;
///
/// use cardfence::client::Resolver;
/// use cardfence::fence::{Fence, SkillWanted};
/// use cardfence::terms::MaxStaleness;
///
/// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let resolver = Resolver::connect("http://127.0.0.1:7878")?;
/// let fence = Fence {
///     max_staleness: Some(MaxStaleness::Within(Duration::from_secs(2))),
///     skills: vec![SkillWanted { id: "summarize-v2".to_owned(), ..SkillWanted::default() }],
///     ..Fence::default()
/// };
/// let found = resolver.resolve(&"acme/summarizer".parse()?, &fence).await?;
/// println!("revision {}, at most {:?} old", found.revision.number, found.freshness.staleness);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Resolver {
    client: RegistryClient<Channel>,
    channel: Channel,
    settings: Settings,
    seen: Arc<Seen>,
}

/// The highest position of any answer, in the history that the registry has now, and how many histories were lost.
#[derive(Debug, Default)]
struct Seen {
    position: Mutex<Option<Position>>,
    lost: AtomicU64,
}

/// What one call yields: the answer, and the position of the view that gave it.
type Outcome<T> = Result<(T, Position), Error>;

impl Resolver {
    /// A resolver of the registry at `address`, such as `http://127.0.0.1:7878`. It connects when first asked.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when `address` is no URL.
    pub fn connect(address: &str) -> Result<Self, Error> {
        let endpoint = Endpoint::from_shared(address.to_owned())
            .map_err(|error| Error::Unreachable(format!("`{address}` is not an address: {error}")))?;
        let endpoint = endpoint
            .connect_timeout(Duration::from_secs(3))
            .http2_keep_alive_interval(Duration::from_secs(5))
            .keep_alive_timeout(Duration::from_secs(5));
        Ok(Self::over(endpoint.connect_lazy(), Settings::default()))
    }

    /// A resolver over a channel of the caller's making, with TLS as it sees fit.
    pub fn over(channel: Channel, settings: Settings) -> Self {
        let client = RegistryClient::new(channel.clone())
            .max_decoding_message_size(MESSAGE_MAX)
            .max_encoding_message_size(MESSAGE_MAX);
        Self { client, channel, settings, seen: Arc::default() }
    }

    /// The agent's current card under `fence`. Its age counts the round trip in.
    ///
    /// # Errors
    /// [`Error::Refused`] with the reason, each condition, and the card that did not pass where it had room;
    /// [`Error::Unreachable`] when nobody answered within the deadline.
    pub async fn resolve(&self, agent: &AgentName, fence: &Fence) -> Result<Resolved, Error> {
        self.ask(&Ask::new(agent, fence)).await
    }

    /// As [`resolve`](Self::resolve), with all that one can say.
    ///
    /// # Errors
    /// As [`resolve`](Self::resolve).
    pub async fn ask(&self, ask: &Ask<'_>) -> Result<Resolved, Error> {
        let asked_for = ask.fence.at_least;
        self.call(asked_for, |at_least, deadline| async move {
            let request = self.request(convert::resolve(ask, at_least), deadline);
            let sent = self.settings.clock.now();
            let answer = within(deadline, self.client.clone().resolve(request)).await?;
            let now = self.settings.clock.now();
            let found = convert::resolved(answer, ask.held, (&sent, &now))?;
            in_time(&found, ask.fence, (&sent, &now))?;
            if found.revision.agent != *ask.agent {
                return Err(convert::unreliable(&format!("it is about {}", found.revision.agent)));
            }
            let position = found.freshness.position;
            Ok((found, position))
        })
        .await
    }

    /// Up to 1,000 agents at one position, in the order they were asked for. Each passes or is refused by itself. A
    /// card for which the answer had no room is resolved by itself, at that position or a later one.
    ///
    /// # Errors
    /// Those of [`resolve`](Self::resolve), when the registry cannot answer the batch as a whole.
    pub async fn batch(
        &self,
        agents: &[(AgentName, Fence)],
        wait: Option<Duration>,
    ) -> Result<Vec<Result<Resolved, Error>>, Error> {
        let (sent, now, answer) = self
            .call(None, |at_least, deadline| async move {
                let request = self.request(convert::batch(agents, at_least, wait), deadline);
                let sent = self.settings.clock.now();
                let answer = within(deadline, self.client.clone().batch_resolve(request)).await?;
                let now = self.settings.clock.now();
                let position = convert::answered_at(answer.freshness.as_ref())?;
                Ok(((sent, now, answer), position))
            })
            .await?;
        let BatchResolveResponse { items, .. } = answer;
        if items.len() != agents.len() {
            return Err(convert::unreliable(&format!("{} items for {} agents", items.len(), agents.len())));
        }
        let mut found = Vec::with_capacity(items.len());
        for (item, (agent, fence)) in items.into_iter().zip(agents) {
            found.push(match item.outcome {
                _ if item.agent != agent.as_str() => {
                    Err(convert::unreliable(&format!("{} in the place of {agent}", item.agent)))
                }
                Some(batch_item::Outcome::Resolved(SentResolved { card_omitted: true, .. })) => {
                    self.resolve(agent, fence).await
                }
                Some(batch_item::Outcome::Resolved(one)) => convert::resolved(one, None, (&sent, &now))
                    .and_then(|one| {
                        in_time(&one, fence, (&sent, &now))?;
                        Ok(one)
                    }),
                Some(batch_item::Outcome::Problem(problem)) => Err(convert::refused(problem)),
                None => Err(convert::unreliable("an item that says nothing")),
            });
        }
        Ok(found)
    }

    /// The highest position of any answer: what the next question asks for at least.
    pub fn position(&self) -> Option<Position> {
        *self.seen.lock()
    }

    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Asks until there is an answer, or until asking again is of no use. `asked_for`: the position that the caller
    /// named, which is then sent instead of the highest.
    async fn call<T, F>(
        &self,
        asked_for: Option<Position>,
        once: impl Fn(Option<Position>, Instant) -> F,
    ) -> Result<T, Error>
    where
        F: Future<Output = Outcome<T>>,
    {
        let deadline = Instant::now() + self.settings.deadline;
        let mut attempt = 1;
        loop {
            let seen = *self.seen.lock();
            // Where the caller names a position of its own, that is sent, and the answer is held against ours.
            let at_least = if asked_for.is_some() { None } else { seen };
            let outcome = once(at_least, deadline).await;
            let error =
                match outcome.and_then(|(answer, position)| Ok((answer, self.seen.rise(position, seen)?))) {
                    Ok((answer, ())) => return Ok(answer),
                    Err(error) => error,
                };
            let lost = matches!(error.reason(), Some(Reason::HistoryDiverged | Reason::PositionInFuture));
            if lost && let Some(position) = at_least {
                // The history that it was read in is gone. What is asked now is asked of the new one.
                self.seen.forget(position);
                attempt += 1;
                if attempt <= self.settings.retry.attempts {
                    continue;
                }
                return Err(error);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(pause) = self.settings.retry.pause(attempt, &error, left, chance()) else {
                return Err(error);
            };
            sleep(pause).await;
            attempt += 1;
        }
    }

    /// The request with the time that is left, so that the server's typed refusal comes before the deadline.
    fn request<M>(&self, message: M, deadline: Instant) -> Request<M> {
        let mut request = Request::new(message);
        request.set_timeout(deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
        request
    }
}

#[async_trait]
impl Discovery for Resolver {
    async fn discover(&self, ask: Ask<'_>) -> Result<Resolved, Error> {
        self.ask(&ask).await
    }

    fn history(&self) -> u64 {
        self.seen.lost.load(Ordering::Acquire)
    }
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Option<Position>> {
        self.position.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a position that was answered, if it is the highest. One below `asked`, which was known when the call was
    /// made, is no answer: the caller has seen a later state already.
    fn rise(&self, position: Position, asked: Option<Position>) -> Result<(), Error> {
        if let Some(asked) = asked.filter(|asked| position.seq < asked.seq) {
            return Err(Error::Unreachable(format!(
                "a view at {position} answered, behind {asked} seen before"
            )));
        }
        let mut held = self.lock();
        if held.is_none_or(|held| held.seq < position.seq) {
            *held = Some(position);
        }
        Ok(())
    }

    /// Drops the position, unless another took its place meanwhile.
    fn forget(&self, position: Position) {
        let mut held = self.lock();
        if *held == Some(position) {
            *held = None;
            self.lost.fetch_add(1, Ordering::AcqRel);
        }
    }
}

/// Whether the bound still holds now that the answer has come: the way back counts, too. A linearizable answer was
/// proven after it was asked for, so it is no older than its round trip.
fn in_time(found: &Resolved, fence: &Fence, (sent, now): (&Moment, &Moment)) -> Result<(), Error> {
    let Some(MaxStaleness::Within(bound)) = fence.max_staleness else { return Ok(()) };
    // Its staleness was rounded up to a millisecond on the way.
    let bound = if bound.is_zero() { now.since(sent) * 2 + Duration::from_millis(1) } else { bound };
    let Some(staleness) = found.staleness(now).filter(|staleness| *staleness > bound) else { return Ok(()) };
    let detail = format!("the answer was at most {staleness:?} old when it came: {bound:?} are allowed");
    Err(Refusal {
        freshness: Some(found.freshness.clone()),
        card: Some(Arc::clone(found.card())),
        revision: Some(found.revision.number),
        retry_after: Some(Duration::from_millis(50)),
        ..Refusal::new(Reason::TooStale, detail)
    }
    .into())
}

async fn within<T>(
    deadline: Instant,
    call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
) -> Result<T, Error> {
    match timeout_at(deadline, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => Err(convert::failed(&status)),
        Err(_) => Err(Error::Unreachable("no answer before the deadline".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Position {
        text.parse().unwrap()
    }

    #[test]
    fn reads_never_go_back_and_a_lost_history_is_forgotten_once() {
        let seen = Seen::default();
        seen.rise(at("5.00000000000000aa"), None).unwrap();
        seen.rise(at("3.00000000000000ab"), None).unwrap();
        assert_eq!(*seen.lock(), Some(at("5.00000000000000aa")), "an earlier one that was under way");
        let behind = seen.rise(at("3.00000000000000ab"), Some(at("5.00000000000000aa")));
        assert!(matches!(behind, Err(Error::Unreachable(_))));
        seen.forget(at("3.00000000000000ab"));
        assert!(seen.lock().is_some(), "a late refusal does not take the new history's position");
        seen.forget(at("5.00000000000000aa"));
        assert!(seen.lock().is_none());
    }
}
