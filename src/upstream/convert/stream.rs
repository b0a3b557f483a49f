//! What is asked and answered in a session. The invariant: nothing half read gets out, a snapshot least of all.

use std::time::Duration;

use bytes::Bytes;

use super::{digest, parsed, unexpected};
use crate::ledger::{CardKept, Entry, Error, Head, HeadReport, Image, Lease, Liveness, Snapshot};
use crate::proto::v1 as pb;
use crate::proto::v1::replicate_request::Ask;
use crate::proto::v1::replicate_response::Answer;
use crate::terms::{AgentName, Digest, Position, Principal, SetDigest, Tag, Timestamp};

pub(in super::super) fn head_wanted(asked: u64, confirm: Option<Duration>) -> pb::ReplicateRequest {
    let millis = |within: Duration| u32::try_from(within.as_millis()).unwrap_or(u32::MAX);
    asking(Ask::Head(pb::HeadWanted { asked, confirm_within_ms: confirm.map(millis) }))
}

pub(in super::super) fn entries_wanted(after: u64, limit: usize) -> pb::ReplicateRequest {
    asking(Ask::Entries(pb::EntriesWanted { after, limit: u32::try_from(limit).unwrap_or(u32::MAX) }))
}

pub(in super::super) fn liveness_wanted(since: Option<Timestamp>) -> pb::ReplicateRequest {
    asking(Ask::Liveness(pb::LivenessWanted { since_micros: since.map(Timestamp::as_micros) }))
}

fn asking(ask: Ask) -> pb::ReplicateRequest {
    pb::ReplicateRequest { ask: Some(ask) }
}

/// The upstream's own report: its hops are not counted up yet.
pub(in super::super) fn head(answer: Answer) -> Result<HeadReport, Error> {
    let Answer::Head(said) = answer else { return Err(unexpected("a head")) };
    Ok(HeadReport {
        head: Head { seq: said.seq, digest: digest(&said.digest)? },
        ledger_id: said.ledger_id,
        in_recovery: false,
        tag_at_asked: said.tag_at_asked.map(Tag),
        wall: Timestamp::from_micros(said.wall_micros),
        age: said.age_micros.map(Duration::from_micros),
        hops: said.hops,
        service: Duration::from_micros(said.service_micros),
    })
}

pub(in super::super) fn entries(said: pb::EntriesSaid) -> Result<Vec<Entry>, Error> {
    let entry = |sent: pb::ReplicatedEntry| {
        Ok(Entry {
            seq: sent.seq,
            digest: digest(&sent.digest)?,
            body_digest: digest(&sent.body_digest)?,
            body: sent.body.into(),
            card: sent.card.as_ref().map(own).map(CardKept::Bytes),
        })
    };
    said.entries.into_iter().map(entry).collect()
}

pub(in super::super) fn liveness(said: pb::LivenessSaid) -> Result<Vec<Liveness>, Error> {
    let row = |sent: pb::AgentLiveness| {
        Ok(Liveness {
            agent: parsed("an agent's name", &sent.agent)?,
            revision: sent.revision,
            origin_confirmed_at: Timestamp::from_micros(sent.confirmed_micros),
            registers: sent.registers_micros.into_iter().map(Timestamp::from_micros).collect(),
            lease: sent.lease_ttl_micros.map(|ttl| Lease {
                ttl: Duration::from_micros(ttl),
                confirmed: Duration::from_micros(sent.lease_confirmed_micros),
            }),
        })
    };
    said.agents.into_iter().map(row).collect()
}

/// A snapshot on its way.
pub(in super::super) struct Arriving {
    snapshot: Snapshot,
    sum: SetDigest,
}

impl Arriving {
    pub(in super::super) fn begin(begin: pb::SnapshotBegin) -> Result<Self, Error> {
        let head = Head { seq: begin.seq, digest: digest(&begin.digest)? };
        let snapshot = Snapshot { ledger_id: begin.ledger_id, head, tags: Vec::new(), agents: Vec::new() };
        Ok(Self { snapshot, sum: SetDigest::default() })
    }

    pub(in super::super) fn tags(&mut self, said: pb::SnapshotTags) -> Result<(), Error> {
        self.snapshot.tags.extend(said.tags.into_iter().map(Tag));
        if self.snapshot.tags.len() as u64 > self.snapshot.head.seq.saturating_add(1) {
            return Err(Error::Corrupt("a snapshot has more digests than entries".to_owned()));
        }
        Ok(())
    }

    pub(in super::super) fn agents(&mut self, said: pb::SnapshotAgents) -> Result<(), Error> {
        for sent in said.agents {
            let agent: AgentName = parsed("an agent's name", &sent.agent)?;
            let card = sent.card.as_ref().map(own);
            if let Some(card) = card.as_ref().filter(|_| !sent.retired) {
                self.sum = self.sum.plus(SetDigest::of(&agent, sent.revision, &Digest::of(card)));
            }
            self.snapshot.agents.push(Image {
                agent,
                revision: sent.revision,
                position: Position { seq: sent.seq, tag: Tag(sent.tag) },
                registered_at: Timestamp::from_micros(sent.registered_micros),
                registered_by: Principal::from(sent.registered_by.as_str()),
                card,
                retired: sent.retired,
            });
        }
        Ok(())
    }

    /// The whole, if it is what the upstream meant to send.
    pub(in super::super) fn end(self, said: &pb::SnapshotEnd) -> Result<Snapshot, Error> {
        if self.sum.to_string() != said.set_digest {
            return Err(Error::Corrupt(
                "the agents of a snapshot are not those that its end names".to_owned(),
            ));
        }
        Ok(self.snapshot)
    }
}

/// A copy, so that a card does not keep the whole message alive for as long as it is served.
fn own(card: &Bytes) -> Bytes {
    Bytes::copy_from_slice(card)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_is_no_answer() {
        assert!(head(Answer::Moved(pb::Moved { seq: 1 })).is_err());
        assert!(
            head(Answer::Head(pb::HeadSaid { digest: vec![1; 31].into(), ..Default::default() })).is_err()
        );
        let begin = pb::SnapshotBegin { ledger_id: "l".to_owned(), seq: 1, digest: vec![1; 32].into() };
        let mut arriving = Arriving::begin(begin.clone()).unwrap();
        assert!(arriving.tags(pb::SnapshotTags { tags: vec![0; 3] }).is_err(), "more tags than entries");
        let image = pb::AgentImage { agent: "no name".to_owned(), ..Default::default() };
        assert!(arriving.agents(pb::SnapshotAgents { agents: vec![image] }).is_err());
        let end = pb::SnapshotEnd { set_digest: "another".to_owned() };
        assert!(Arriving::begin(begin).unwrap().end(&end).is_err());
    }
}
