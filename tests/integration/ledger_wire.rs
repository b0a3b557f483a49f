//! The ledger's suite once more, through the wire: the real binary serves the ledger, and all that is written and
//! read goes through gRPC, judged by the registry's own judge instead of the suite's plain one.
//!
//! Reads are linearizable (`max_staleness` of 0), so that the suite may read what it has just been told. What the
//! suite asks for and the wire says in other words is put together here: the head is the position of a ledger page
//! and the entry there, an entry's card is fetched by its revision, and what was current at a sequence number is
//! asked by the position of that entry. Nothing is kept from one call to the next but the connection.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use cardfence::card::{Change, Class, Item};
use cardfence::ledger::conformance::{Backend, Ledger};
use cardfence::ledger::{
    Body, CardKept, Confirmed, Entries, Entry, Error, Expect, Head, HeadReport, History, Kind, Lease,
    Liveness, Op, Origins, Outcome, Reading, Receipt, Refusal, Registered, Revision, RevisionKind, Write,
    WriteError, Writes, chain,
};
use cardfence::proto::v1 as pb;
use cardfence::proto::v1::admin_client::AdminClient;
use cardfence::proto::v1::get_revision_request::Which;
use cardfence::proto::v1::registry_client::RegistryClient;
use cardfence::proto::v1::watch_client::WatchClient;
use cardfence::terms::{AgentName, Digest, Position, Principal, Reason, Tag, Timestamp};
use prost::{Message as _, Name as _};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::ledger_conformance::database;
use crate::support::scratch::Scratch;
use crate::support::server::Server;

/// The longest that a read may ask to wait. A loaded machine needs some of it.
const WAIT_MS: i64 = 10_000;

mod over_sqlite {
    use super::*;

    struct Served;

    #[async_trait]
    impl Backend for Served {
        async fn fresh(&self) -> Ledger {
            let scratch = Scratch::new("ledger-wire");
            let server =
                Server::serve(&format!("sqlite:{}", scratch.path().join("ledger.db").display())).await;
            reached(server, Box::new(scratch)).await
        }
    }

    cardfence::ledger_conformance!(remote: Served);
}

mod over_postgres {
    use super::*;

    struct Served;

    #[async_trait]
    impl Backend for Served {
        async fn fresh(&self) -> Ledger {
            let database = database().await;
            let server = Server::serve(database.url()).await;
            reached(server, Box::new(database)).await
        }
    }

    cardfence::ledger_conformance!(remote: Served);
}

/// The ledger of a server, which goes before what it works in.
async fn reached(server: Server, works_in: Box<dyn std::any::Any + Send + Sync>) -> Ledger {
    let endpoint = Endpoint::from_shared(server.url()).unwrap();
    let wire = Arc::new(Wire { channel: endpoint.connect().await.unwrap(), endpoint });
    let entries: Arc<dyn Entries> = Arc::<Wire>::clone(&wire);
    let origins: Arc<dyn Origins> = Arc::<Wire>::clone(&wire);
    let mut ledger = Ledger::remote(Arc::<Wire>::clone(&wire), entries, wire);
    ledger.origins = Some(origins);
    ledger.keep.extend([Box::new(server), works_in]);
    ledger
}

/// A ledger at the other end of a connection.
#[derive(Debug)]
struct Wire {
    endpoint: Endpoint,
    channel: Channel,
}

#[async_trait]
impl Writes for Wire {
    /// Sends it again after the pause that the server asks for when other registers of the agent were faster each
    /// time, as a client must: the request id makes that safe. Nothing else is sent twice.
    async fn submit(&self, write: Write) -> Result<Receipt, WriteError> {
        assert_eq!(write.principal, Principal::anonymous(), "over the wire nobody has a name yet");
        let written = loop {
            let status = match self.send(&write).await {
                Ok(written) => break written,
                Err(status) => status,
            };
            let problem = said(&status);
            let outrun = problem.reason == Reason::Overloaded.slug()
                && problem.detail.contains("faster until the time was over");
            let pause =
                problem.retry_after_ms.map(|millis| Duration::from_millis(millis.try_into().unwrap()));
            match pause {
                Some(pause) if outrun && Instant::now() + pause < write.deadline => {
                    tokio::time::sleep(pause).await
                }
                _ => return Err(not_written(problem)),
            }
        };
        assert_eq!((written.agent.as_str(), written.dry_run), (write.agent.as_str(), write.dry_run));
        Ok(Receipt {
            outcome: match written.outcome() {
                pb::Outcome::Created => Outcome::Created,
                pb::Outcome::Updated => Outcome::Updated,
                pb::Outcome::Unchanged => Outcome::Unchanged,
                pb::Outcome::Retired => Outcome::Retired,
                pb::Outcome::Unspecified => panic!("an outcome is not said: {written:?}"),
            },
            revision: written.revision,
            position: written.position.map(|text| position(&text)),
            change: written.change.map(change),
            superseded: written.superseded,
            replayed: false,
        })
    }
}

#[async_trait]
impl Origins for Wire {
    async fn confirm(&self, items: &[(AgentName, Digest)]) -> Result<Vec<Confirmed>, Error> {
        let asked = items.iter().map(|(agent, digest)| pb::OriginItem {
            agent: agent.to_string(),
            content_digest: digest.tagged(),
        });
        let request = pb::ConfirmOriginRequest { items: asked.collect() };
        let answer = RegistryClient::new(self.channel.clone()).confirm_origin(request).await;
        let answer = answer.map_err(|status| failed(&status))?.into_inner();
        let told = answer.items.into_iter().zip(items).map(|(item, (agent, _))| {
            assert_eq!(item.agent, agent.as_str(), "answers come in the order of the items");
            match item.outcome.expect("an outcome is said") {
                pb::origin_outcome::Outcome::Confirmed(done) => {
                    let freshness = done.freshness.as_ref().expect("an answer says how fresh it is");
                    assert_eq!(freshness.origin_confirmed_at, done.origin_confirmed_at, "at once");
                    let lease = done.lease_ttl_ms.map(|ttl| Lease {
                        ttl: Duration::from_millis(ttl.try_into().unwrap()),
                        confirmed: Duration::from_micros(
                            done.lease_confirmed_us.unwrap().try_into().unwrap(),
                        ),
                    });
                    let at = time(done.origin_confirmed_at.as_ref());
                    Confirmed::Done { revision: done.revision, at, lease }
                }
                pb::origin_outcome::Outcome::Problem(problem) => {
                    let revision = problem.revision.unwrap_or_default();
                    match problem.reason.as_str() {
                        "agent_not_found" => Confirmed::NotFound,
                        "agent_retired" => Confirmed::Retired { revision },
                        "pin_mismatch" => Confirmed::OtherDigest { revision },
                        _ => panic!("{problem:?}"),
                    }
                }
            }
        });
        Ok(told.collect())
    }
}

#[async_trait]
impl Entries for Wire {
    async fn open(&self) -> Result<Box<dyn Reading>, Error> {
        let channel = self.endpoint.connect().await.map_err(|error| Error::Unavailable(error.to_string()))?;
        Ok(Box::new(Session(Self { endpoint: self.endpoint.clone(), channel })))
    }
}

/// A connection of its own.
struct Session(Wire);

#[async_trait]
impl Reading for Session {
    async fn head(&mut self, asked: u64) -> Result<HeadReport, Error> {
        let page = self.0.page(asked, 1).await?;
        // Both are of the moment that this freshness speaks of: what an entry holds does not change any more.
        let freshness = page.freshness.expect("a page says how fresh it is");
        let at = position(&freshness.position);
        let ledger_id = self.0.ledger_id().await?;
        let digest = self.0.digest_at(at.seq).await?.expect("the ledger reaches its own position");
        assert_eq!(Position::new(at.seq, &digest), at, "the position is of this ledger");
        let digest_at_asked = match asked {
            0 => Some(chain::origin(&ledger_id)),
            _ => page.entries.first().map(|entry| hex(&entry.digest)),
        };
        Ok(HeadReport {
            ledger_id,
            in_recovery: freshness.basis() != pb::Basis::Authority,
            head: Head { seq: at.seq, digest },
            tag_at_asked: digest_at_asked.as_ref().map(Tag::from),
            wall: time(freshness.proven_at.as_ref()),
            age: Some(Duration::ZERO),
            hops: 0,
            service: Duration::ZERO,
        })
    }

    async fn read(&mut self, after: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        // Nothing comes after the last number there is, and 0 would ask from the beginning.
        let Some(from) = after.checked_add(1) else { return Ok(Vec::new()) };
        let mut entries = self.0.entries(from, limit).await?;
        let cards = entries.iter().map(async |entry| {
            let body = Body::parse(&entry.body).unwrap();
            let Kind::CardRegistered(facts) = &body.kind else { return Ok(None) };
            self.0.card(&body.agent().unwrap(), facts.revision).await
        });
        let cards = futures::future::try_join_all(cards).await?;
        for (entry, card) in entries.iter_mut().zip(cards) {
            entry.card = card.map(CardKept::Bytes);
        }
        Ok(entries)
    }

    /// When each live agent was confirmed. Its registers, and what moved since when, are not said.
    async fn liveness(&mut self, since: Option<Timestamp>) -> Result<Vec<Liveness>, Error> {
        assert_eq!(since, None, "the wire does not say what moved since then");
        let request = pb::ListAgentsRequest {
            page_size: Some(1_000),
            max_staleness: linearizable(),
            wait_ms: Some(WAIT_MS),
            ..Default::default()
        };
        let page = RegistryClient::new(self.0.channel.clone()).list_agents(request).await;
        let page = page.map_err(|status| failed(&status))?.into_inner();
        assert!(page.complete, "the suite has no more agents than a page");
        let liveness = page.items.into_iter().map(|item| Liveness {
            revision: item.revision,
            agent: item.agent.parse().unwrap(),
            origin_confirmed_at: time(item.freshness.unwrap().origin_confirmed_at.as_ref()),
            registers: Vec::new(),
            lease: None,
        });
        Ok(liveness.collect())
    }
}

#[async_trait]
impl History for Wire {
    async fn revision(&self, agent: &AgentName, number: u64) -> Result<Option<Revision>, Error> {
        let answer = self.get_revision(agent, Which::Revision(number)).await;
        Ok(known(answer)?.map(|answer| revision(agent, answer.revision.unwrap())))
    }

    async fn revision_at(&self, agent: &AgentName, seq: u64) -> Result<Option<Revision>, Error> {
        let head = position(&self.page(0, 1).await?.freshness.unwrap().position);
        let seq = seq.min(head.seq);
        let digest = self.digest_at(seq).await?.expect("the ledger reaches its own position");
        let at = Position::new(seq, &digest);
        match self.get_revision(agent, Which::At(at.to_string())).await {
            Err(status) if said(&status).reason == Reason::AgentRetired.slug() => {
                let number = said(&status).revision.expect("it says which revision is the tombstone");
                self.revision(agent, number).await
            }
            answer => Ok(known(answer)?.map(|answer| revision(agent, answer.revision.unwrap()))),
        }
    }

    /// The wire has pages from the newest on and tokens to go on by: what was not asked for is passed over.
    async fn revisions(
        &self,
        agent: &AgentName,
        below: Option<u64>,
        seq: u64,
        limit: usize,
    ) -> Result<Vec<Revision>, Error> {
        let mut found = Vec::new();
        let mut request = pb::ListRevisionsRequest {
            agent: agent.to_string(),
            page_size: Some(u32::try_from(limit).unwrap()),
            max_staleness: linearizable(),
            wait_ms: Some(WAIT_MS),
            ..Default::default()
        };
        loop {
            let answer = RegistryClient::new(self.channel.clone()).list_revisions(request.clone()).await;
            let Some(page) = known(answer)? else { return Ok(found) };
            assert_eq!(page.complete, page.next_page_token.is_empty());
            let revisions = page.items.into_iter().map(|item| revision(agent, item));
            found.extend(revisions.filter(|revision| {
                below.is_none_or(|below| revision.number < below) && revision.position.seq <= seq
            }));
            if found.len() >= limit || page.complete {
                found.truncate(limit);
                return Ok(found);
            }
            request.page_token = page.next_page_token;
        }
    }

    async fn card(&self, agent: &AgentName, number: u64) -> Result<Option<Bytes>, Error> {
        let answer = self.get_revision(agent, Which::Revision(number)).await;
        Ok(known(answer)?.and_then(|answer| answer.card))
    }

    async fn entries(&self, from: u64, limit: usize) -> Result<Vec<Entry>, Error> {
        let page = self.page(from, limit).await?;
        let entries = page.entries.into_iter().map(|entry| Entry {
            seq: entry.seq,
            digest: hex(&entry.digest),
            body_digest: hex(&entry.body_digest),
            body: entry.body.into(),
            card: None,
        });
        Ok(entries.collect())
    }

    async fn digest_at(&self, seq: u64) -> Result<Option<Digest>, Error> {
        if seq == 0 {
            return Ok(Some(chain::origin(&self.ledger_id().await?)));
        }
        Ok(self.page(seq, 1).await?.entries.first().map(|entry| hex(&entry.digest)))
    }
}

impl Wire {
    async fn send(&self, write: &Write) -> Result<pb::Written, Status> {
        let left = write.deadline.saturating_duration_since(Instant::now());
        let mut registry = RegistryClient::new(self.channel.clone());
        let answer = match &write.op {
            Op::Register { card, release, source, ttl, .. } => {
                let mut request = Request::new(pb::RegisterRequest {
                    agent: write.agent.to_string(),
                    card: card.bytes().clone(),
                    expect: expect(write.expect),
                    request_id: write.request_id.to_string(),
                    release: release.clone(),
                    note: write.note.clone(),
                    source: source.clone(),
                    dry_run: write.dry_run,
                    ttl_ms: ttl.map(|ttl| ttl.as_millis().try_into().unwrap()),
                    wait_replicated_ms: None,
                });
                request.set_timeout(left);
                registry.register(request).await
            }
            Op::Retire => {
                let mut request = Request::new(pb::RetireRequest {
                    agent: write.agent.to_string(),
                    expect: expect(write.expect),
                    request_id: write.request_id.to_string(),
                    note: write.note.clone(),
                    dry_run: write.dry_run,
                    wait_replicated_ms: None,
                });
                request.set_timeout(left);
                registry.retire(request).await
            }
        };
        answer.map(tonic::Response::into_inner)
    }

    async fn page(&self, from: u64, limit: usize) -> Result<pb::ReadLedgerResponse, Error> {
        let request = pb::ReadLedgerRequest {
            from,
            limit: Some(u32::try_from(limit).unwrap()),
            max_staleness: linearizable(),
            wait_ms: Some(WAIT_MS),
            ..Default::default()
        };
        let answer = AdminClient::new(self.channel.clone()).read_ledger(request).await;
        answer.map(tonic::Response::into_inner).map_err(|status| failed(&status))
    }

    /// Of a node that has loaded its ledger: before, it cannot know.
    async fn ledger_id(&self) -> Result<String, Error> {
        let request = pb::WatermarkRequest {
            max_staleness: linearizable(),
            wait_ms: Some(WAIT_MS),
            ..Default::default()
        };
        let answer = WatchClient::new(self.channel.clone()).watermark(request).await;
        answer.map(|answer| answer.into_inner().ledger_id).map_err(|status| failed(&status))
    }

    async fn get_revision(
        &self,
        agent: &AgentName,
        which: Which,
    ) -> Result<tonic::Response<pb::GetRevisionResponse>, Status> {
        let request = pb::GetRevisionRequest {
            agent: agent.to_string(),
            which: Some(which),
            max_staleness: linearizable(),
            wait_ms: Some(WAIT_MS),
            ..Default::default()
        };
        RegistryClient::new(self.channel.clone()).get_revision(request).await
    }
}

fn linearizable() -> Option<pb::MaxStaleness> {
    Some(pb::MaxStaleness { bound: Some(pb::max_staleness::Bound::WithinMs(0)) })
}

fn expect(expect: Expect) -> Option<pb::Expect> {
    use pb::expect::Current;
    let current = match expect {
        Expect::Any => return None,
        Expect::Absent => Current::Absent(pb::ExpectAbsent {}),
        Expect::Revision { number, seen_at: None } => Current::Revision(number.to_string()),
        Expect::Revision { number, seen_at: Some(at) } => Current::Revision(format!("{number}@{at}")),
        Expect::Digest(digest) => Current::Digest(digest.tagged()),
    };
    Some(pb::Expect { current: Some(current) })
}

/// What the server says of a failed call.
fn said(status: &Status) -> pb::Problem {
    let whole = tonic_types::pb::Status::decode(status.details()).unwrap();
    let url = format!("type.googleapis.com/{}", pb::Problem::full_name());
    let problem = whole.details.iter().find(|detail| detail.type_url == url);
    let problem = problem.unwrap_or_else(|| panic!("a failure without its problem: {status:?}"));
    pb::Problem::decode(&*problem.value).unwrap()
}

/// What there is, or that there is none.
fn known<T>(answer: Result<tonic::Response<T>, Status>) -> Result<Option<T>, Error> {
    match answer {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) => {
            let absent = [Reason::AgentNotFound.slug(), Reason::RevisionNotFound.slug()];
            if absent.contains(&said(&status).reason.as_str()) { Ok(None) } else { Err(failed(&status)) }
        }
    }
}

fn failed(status: &Status) -> Error {
    Error::Unavailable(format!("{status:?}"))
}

fn not_written(problem: pb::Problem) -> WriteError {
    let reason = Reason::ALL.iter().find(|reason| reason.slug() == problem.reason);
    match *reason.unwrap_or_else(|| panic!("a reason that is not in the table: {problem:?}")) {
        Reason::StoreUnavailable => WriteError::Unavailable,
        Reason::OutcomeUnknown => WriteError::OutcomeUnknown,
        Reason::Overloaded => WriteError::Overloaded,
        Reason::Draining => WriteError::Draining,
        Reason::Internal => WriteError::Internal,
        reason => WriteError::Refused(Refusal {
            reason,
            detail: problem.detail,
            current: problem.revision,
            change: problem.change.map(change),
        }),
    }
}

fn revision(agent: &AgentName, sent: pb::Revision) -> Revision {
    let change = sent.change.clone().map(change);
    let kind = match sent.kind() {
        pb::RevisionKind::Card => RevisionKind::Card,
        pb::RevisionKind::Tombstone => RevisionKind::Tombstone,
        pb::RevisionKind::Unspecified => panic!("a kind is not said: {sent:?}"),
    };
    let digest = |text: &Option<String>| text.as_deref().expect("a card has digests").parse().unwrap();
    let facts = sent.generation.as_deref().map(|generation| Registered {
        revision: sent.revision,
        raw_digest: digest(&sent.raw_digest),
        content_digest: digest(&sent.content_digest),
        skill_fingerprint: digest(&sent.skill_fingerprint),
        negotiation_fingerprint: digest(&sent.negotiation_fingerprint),
        generation: generation.parse().unwrap(),
        card_version: sent.card_version.clone(),
        release: sent.release.clone(),
        class: change.as_ref().map(|change| change.class),
        silent: change.as_ref().map(|change| change.silent),
        source: sent.source.clone(),
    });
    Revision {
        agent: agent.clone(),
        number: sent.revision,
        position: position(&sent.position),
        kind,
        registered_at: time(sent.registered_at.as_ref()),
        registered_by: Principal::from(sent.registered_by.as_str()),
        note: sent.note,
        facts,
        change,
    }
}

fn change(sent: pb::Change) -> Change {
    assert_eq!(sent.items_omitted, 0, "the suite's changes are small");
    let items = sent.items.iter().map(|item| Item {
        kind: item.kind.parse().unwrap(),
        class: class(item.class()),
        pointer: item.pointer.clone(),
        subject: item.subject.clone(),
    });
    Change { class: class(sent.class()), silent: sent.silent, items: items.collect() }
}

fn class(sent: pb::ChangeClass) -> Class {
    match sent {
        pb::ChangeClass::Cosmetic => Class::Cosmetic,
        pb::ChangeClass::Additive => Class::Additive,
        pb::ChangeClass::Breaking => Class::Breaking,
        pb::ChangeClass::Unspecified => panic!("a class is not said"),
    }
}

fn position(text: &str) -> Position {
    text.parse().unwrap()
}

fn hex(text: &str) -> Digest {
    text.parse().unwrap()
}

fn time(sent: Option<&prost_types::Timestamp>) -> Timestamp {
    let sent = sent.expect("it is said when");
    Timestamp::from_micros(sent.seconds * 1_000_000 + i64::from(sent.nanos) / 1_000)
}
