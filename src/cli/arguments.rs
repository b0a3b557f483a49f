//! Arguments that several commands share, and how their values are read.
//!
//! What can be checked without asking is checked here, by the same types that the registry reads them with.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderValue;
use http::header::{IF_MATCH, IF_NONE_MATCH};

use super::client::{Client, Request};
use super::failure::{Failure, failed};
use super::query::Query;
use crate::terms::{AgentName, Digest, Position, RequestId, RevisionRef, parse_duration};
use crate::wire;

/// Which registry is asked.
#[derive(Debug, clap::Args)]
pub(super) struct Server {
    /// The registry's address, `http://…` or `https://…`
    #[arg(id = "server", long, 
        env = "CARDFENCE_SERVER",
        value_name = "URL",
        default_value = DEFAULT_SERVER
    )]
    address: String,
}

pub(super) const DEFAULT_SERVER: &str = "http://127.0.0.1:7878";

impl Server {
    pub(super) fn client(&self) -> Result<Client, Failure> {
        Client::new(&self.address)
    }
}

/// What every read may demand of the view.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Standing {
    /// How stale the answer may be: a duration, `0` (linearizable) or `any` [default: the server's, 5s]
    #[arg(long, value_name = "DURATION", value_parser = max_staleness)]
    pub(super) max_staleness: Option<String>,
    /// A position that the view must have applied
    #[arg(long, value_name = "POSITION")]
    pub(super) at_least: Option<Position>,
    /// How long the answer may be waited for, at most 10s; `0`: judge now [default: the server's, 1s]
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(super) wait: Option<String>,
}

impl Standing {
    pub(super) fn query(&self) -> Query {
        let mut query = Query::default();
        self.add_to(&mut query);
        query
    }

    pub(super) fn add_to(&self, query: &mut Query) {
        query.set_some("max_staleness", self.max_staleness.as_ref());
        query.set_some("at_least", self.at_least);
        query.set_some("wait", self.wait.as_ref());
    }
}

/// What every write may say.
#[derive(Debug, Clone, Default, clap::Args)]
pub(super) struct Writing {
    /// For people: why
    #[arg(long, value_name = "TEXT")]
    pub(super) note: Option<String>,
    /// Judge everything and write nothing
    #[arg(long)]
    pub(super) dry_run: bool,
    /// The id under which this is done at most once; repeat it to repeat a request [default: a random one]
    #[arg(long, value_name = "ID")]
    request_id: Option<RequestId>,
    /// Once it is done, wait so long for all replicas to apply it, at most 60s; exits with 5 when one has not
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    wait_replicated: Option<String>,
}

impl Writing {
    pub(super) fn request_id(&self) -> RequestId {
        self.request_id.clone().unwrap_or_else(RequestId::random)
    }

    /// What the registry may take beyond what any request may.
    pub(super) fn patience(&self) -> Duration {
        let wait = self.wait_replicated.as_deref().and_then(|text| parse_duration(text).ok());
        // More is refused.
        wait.unwrap_or_default().min(Duration::from_secs(60))
    }

    pub(super) fn add_to(&self, query: &mut Query) {
        query.set_some("note", self.note.as_ref());
        query.set_if("dry_run", self.dry_run);
        query.set_some("wait_replicated", self.wait_replicated.as_ref());
    }
}

/// What must be current for a write to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expect {
    Absent,
    Revision(RevisionRef),
    Digest(Digest),
}

impl Expect {
    pub(super) fn add_to_query(expect: Option<&Self>, query: &mut Query) {
        if let Some(Self::Revision(revision)) = expect {
            query.set("expect_revision", revision);
        }
    }

    pub(super) fn add_to(expect: Option<&Self>, request: Request) -> Request {
        match expect {
            Some(Self::Absent) => request.header(IF_NONE_MATCH, HeaderValue::from_static("*")),
            Some(Self::Digest(digest)) => match HeaderValue::try_from(format!("\"{}\"", digest.tagged())) {
                Ok(tag) => request.header(IF_MATCH, tag),
                // A digest is visible ASCII.
                Err(_) => request,
            },
            Some(Self::Revision(_)) | None => request,
        }
    }
}

/// Reads what a retirement or a rollback may expect: a revision or a digest.
pub(super) fn expect_current(text: &str) -> Result<Expect, String> {
    if let Ok(digest) = text.parse() {
        return Ok(Expect::Digest(digest));
    }
    let neither =
        || format!("`{text}` is neither a revision (`7`, `7@<position>`) nor a digest (`sha256:…`)");
    text.parse().map(Expect::Revision).map_err(|_| neither())
}

/// Reads what a register may expect: that besides, and that there is nothing.
pub(super) fn expect(text: &str) -> Result<Expect, String> {
    match text {
        "absent" => Ok(Expect::Absent),
        text => expect_current(text).map_err(|why| format!("{why}, nor `absent`")),
    }
}

pub(super) fn max_staleness(text: &str) -> Result<String, String> {
    wire::max_staleness("max_staleness", text).map(|_| text.to_owned()).map_err(|error| error.why)
}

pub(super) fn duration(text: &str) -> Result<String, String> {
    wire::duration("duration", text).map(|_| text.to_owned()).map_err(|error| error.why)
}

/// A fingerprint in the form that the registry gives it: hex without a prefix.
pub(super) fn fingerprint(text: &str) -> Result<String, String> {
    Digest::from_str(text).map(|digest| digest.hex()).map_err(|error| error.to_string())
}

/// A digest in the form that the registry gives it.
pub(super) fn tagged(text: &str) -> Result<String, String> {
    Digest::from_str(text).map(|digest| digest.tagged()).map_err(|error| error.to_string())
}

/// The path of an agent's resource.
pub(super) fn agent_path(agent: &AgentName) -> String {
    format!("/v1/agents/{agent}")
}

/// A file, or standard input for `-`.
pub(super) fn read_input(path: &Path) -> Result<Bytes, Failure> {
    let read = if is_stdio(path) {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        std::fs::read(path)
    };
    read.map(Bytes::from).map_err(|error| failed(format!("cannot read {}: {error}", shown(path))))
}

pub(super) fn is_stdio(path: &Path) -> bool {
    path == Path::new("-")
}

pub(super) fn shown(path: &Path) -> String {
    if is_stdio(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// The argument that names a card.
#[derive(Debug, clap::Args)]
pub(super) struct Input {
    /// The card; `-` is standard input
    #[arg(value_name = "FILE|-")]
    pub(super) file: PathBuf,
}
