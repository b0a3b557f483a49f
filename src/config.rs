//! What `serve` can be told: flags over environment (`CARDFENCE_*`) over a file, and the defaults under all.
//!
//! One list of settings ([`Args`]) serves all three: the flag's name is the environment variable's and the
//! file's member. [`Config`] is what comes out, checked; a contradiction is refused at start, by name.
//!
//! The file is long because every setting is here in each of its forms.

mod databases;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use crate::card::Limits;
use crate::terms::{display_duration, parse_duration};

pub use databases::Databases;

/// A message is at most 3 MiB, and holds more than a card.
const CARD_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Upstreams of one edge.
const UPSTREAMS_MAX: usize = 8;

/// The settings of a server. Every one is optional; durations are written like `250ms`, `5s`, `2m`.
#[derive(Debug, Clone, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Args {
    /// Address and port to listen on; port 0 takes a free one [default: 127.0.0.1:7878]
    #[arg(long, env = "CARDFENCE_LISTEN", value_name = "ADDR:PORT")]
    pub listen: Option<String>,
    /// `sqlite:PATH`, created when absent, or `postgres://…`; of several with commas between them the first that can
    /// be written to [default: sqlite:cardfence.db]
    #[arg(long, env = "CARDFENCE_STORE", value_name = "URL", hide_env_values = true)]
    pub store: Option<String>,
    /// The store is a standby that is only read: `postgres://…` of its primary, which freshness is proven by and
    /// writes go to
    #[arg(long, env = "CARDFENCE_AUTHORITY", value_name = "URL", hide_env_values = true)]
    pub authority: Option<String>,
    /// Follow this server instead of keeping a ledger: be an edge of a node or of another edge. Several, separated by
    /// commas, are tried in order
    #[arg(long, env = "CARDFENCE_UPSTREAM", value_name = "URL[,URL…]")]
    pub upstream: Option<String>,
    /// `apply` brings the schema up to date at start, `check` refuses another schema [default: apply]
    #[arg(long, env = "CARDFENCE_MIGRATE", value_name = "MODE")]
    pub migrate: Option<String>,
    /// The database's address leads to PgBouncer in transaction mode; needs `--migrate check`, since migrations do
    /// not work through it
    #[arg(long, env = "CARDFENCE_POOLED", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub pooled: Option<bool>,
    /// What this node calls itself in its answers [default: the host's name and the port]
    #[arg(long, env = "CARDFENCE_NODE", value_name = "NAME")]
    pub node: Option<String>,
    /// Listen on other addresses than loopback although nobody is asked for credentials
    #[arg(long, env = "CARDFENCE_INSECURE", num_args = 0..=1, default_missing_value = "true", value_name = "BOOL")]
    pub insecure: Option<bool>,
    /// Staleness accepted where a fence says nothing of it [default: 5s]
    #[arg(long, env = "CARDFENCE_DEFAULT_MAX_STALENESS", value_name = "DURATION")]
    pub default_max_staleness: Option<String>,
    /// Wait where a request says nothing of it, at most 10s [default: 1s]
    #[arg(long, env = "CARDFENCE_DEFAULT_WAIT", value_name = "DURATION")]
    pub default_wait: Option<String>,
    /// Time between two polls of the ledger, each of which confirms the view [default: 100ms]
    #[arg(long, env = "CARDFENCE_POLL", value_name = "DURATION")]
    pub poll: Option<String>,
    /// The longest that one exchange of the view with the store may take [default: 2s]
    #[arg(long, env = "CARDFENCE_EXCHANGE_TIMEOUT", value_name = "DURATION")]
    pub exchange_timeout: Option<String>,
    /// The longest that a write may take [default: 10s]
    #[arg(long, env = "CARDFENCE_WRITE_TIMEOUT", value_name = "DURATION")]
    pub write_timeout: Option<String>,
    /// The longest that any request may take [default: 30s]
    #[arg(long, env = "CARDFENCE_REQUEST_TIMEOUT", value_name = "DURATION")]
    pub request_timeout: Option<String>,
    /// How long requests in flight may take to finish when the server is told to stop [default: 10s]
    #[arg(long, env = "CARDFENCE_DRAIN_TIMEOUT", value_name = "DURATION")]
    pub drain_timeout: Option<String>,
    /// Requests handled at once; one more is refused as overloaded [default: 4096]
    #[arg(long, env = "CARDFENCE_MAX_REQUESTS", value_name = "COUNT")]
    pub max_requests: Option<usize>,
    /// Connections at once; further ones wait to be accepted [default: 16384]
    #[arg(long, env = "CARDFENCE_MAX_CONNECTIONS", value_name = "COUNT")]
    pub max_connections: Option<usize>,
    /// Edges that may follow this server at once [default: 256]
    #[arg(long, env = "CARDFENCE_MAX_EDGES", value_name = "COUNT")]
    pub max_edges: Option<usize>,
    /// Watch streams at once; one more is refused as overloaded [default: 20000]
    #[arg(long, env = "CARDFENCE_MAX_SUBSCRIBERS", value_name = "COUNT")]
    pub max_subscribers: Option<usize>,
    /// Time between two checkpoints of a watch stream on which nothing else happens, at most 15s [default: 5s]
    #[arg(long, env = "CARDFENCE_CHECKPOINT", value_name = "DURATION")]
    pub checkpoint: Option<String>,
    /// How long a watch stream may be open, give or take a tenth [default: 30m]
    #[arg(long, env = "CARDFENCE_MAX_STREAM_AGE", value_name = "DURATION")]
    pub max_stream_age: Option<String>,
    /// Size of a card in bytes, at most 2097152 [default: 262144]
    #[arg(long, env = "CARDFENCE_MAX_CARD_BYTES", value_name = "BYTES")]
    pub max_card_bytes: Option<usize>,
    /// Objects and arrays inside one another in a card, itself included: 8 to 120 [default: 64]
    #[arg(long, env = "CARDFENCE_MAX_CARD_DEPTH", value_name = "COUNT")]
    pub max_card_depth: Option<usize>,
    /// Skills of a card: 1 to 100000 [default: 1000]
    #[arg(long, env = "CARDFENCE_MAX_CARD_SKILLS", value_name = "COUNT")]
    pub max_card_skills: Option<usize>,
    /// Where to send traces over OTLP (gRPC), such as `http://127.0.0.1:4317` [default: nowhere]
    #[arg(long, env = "CARDFENCE_OTLP_ENDPOINT", value_name = "URL")]
    pub otlp_endpoint: Option<String>,
    /// `text` or `json` [default: text]
    #[arg(long, env = "CARDFENCE_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<String>,
    /// What is logged, such as `info` or `cardfence=debug` [default: info]
    #[arg(long, env = "CARDFENCE_LOG", value_name = "FILTER")]
    pub log: Option<String>,
}

/// Where the ledger is kept.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// One file, one process.
    Sqlite(PathBuf),
    /// A PostgreSQL database, wherever it is at the moment.
    Postgres(Databases),
    /// Nowhere here: with a node or an edge at one of these URLs.
    Upstream(Vec<String>),
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(databases) => databases.fmt(f),
            Self::Upstream(urls) => f.write_str(&urls.join(",")),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a view over a standby is proven by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authority {
    /// The standby's primary.
    Postgres(Databases),
    /// A node of the same ledger, at one of these URLs.
    Upstream(Vec<String>),
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(databases) => databases.fmt(f),
            Self::Upstream(urls) => f.write_str(&urls.join(",")),
        }
    }
}

/// Whether `serve` may change the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrate {
    Apply,
    Check,
}

/// How logs are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

/// Checked settings.
#[derive(Debug, Clone)]
pub struct Config {
    pub listen: SocketAddr,
    pub store: StoreUrl,
    /// Set where the store is a standby.
    pub authority: Option<Authority>,
    pub migrate: Migrate,
    /// The database is reached through PgBouncer in transaction mode.
    pub pooled: bool,
    pub node: Option<String>,
    pub default_max_staleness: Duration,
    pub default_wait: Duration,
    pub poll: Duration,
    pub exchange_timeout: Duration,
    pub write_timeout: Duration,
    pub request_timeout: Duration,
    pub drain_timeout: Duration,
    pub max_requests: usize,
    pub max_connections: usize,
    pub max_edges: usize,
    pub max_subscribers: usize,
    pub checkpoint: Duration,
    pub max_stream_age: Duration,
    /// Of cards that are registered from now on.
    pub card: Limits,
    pub otlp_endpoint: Option<String>,
    pub log_format: LogFormat,
    pub log: String,
}

/// A setting that cannot be used: its name, the value, and what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("{name}: `{value}` is not allowed: {allowed}")]
    Invalid { name: &'static str, value: String, allowed: String },
    #[error(
        "listen: {0} can be reached by others, and nobody is asked for credentials: listen on loopback, or say --insecure"
    )]
    Insecure(SocketAddr),
    #[error("the configuration file {path} cannot be read: {why}")]
    File { path: String, why: String },
}

impl Args {
    /// The settings of a TOML file.
    ///
    /// # Errors
    /// When it cannot be read, or holds something that is no setting.
    pub fn from_file(path: &std::path::Path) -> Result<Self, Error> {
        let failed = |why: String| Error::File { path: path.display().to_string(), why };
        let text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
        // The error itself quotes the line, which may hold a password.
        toml::from_str(&text).map_err(|error| {
            let line =
                error.span().map_or(0, |span| text[..span.start.min(text.len())].lines().count().max(1));
            failed(format!("line {line}: {}", error.message()))
        })
    }

    /// These settings, and those of `lower` where these say nothing.
    #[must_use]
    pub fn over(self, lower: Self) -> Self {
        Self {
            listen: self.listen.or(lower.listen),
            store: self.store.or(lower.store),
            authority: self.authority.or(lower.authority),
            upstream: self.upstream.or(lower.upstream),
            migrate: self.migrate.or(lower.migrate),
            pooled: self.pooled.or(lower.pooled),
            node: self.node.or(lower.node),
            insecure: self.insecure.or(lower.insecure),
            default_max_staleness: self.default_max_staleness.or(lower.default_max_staleness),
            default_wait: self.default_wait.or(lower.default_wait),
            poll: self.poll.or(lower.poll),
            exchange_timeout: self.exchange_timeout.or(lower.exchange_timeout),
            write_timeout: self.write_timeout.or(lower.write_timeout),
            request_timeout: self.request_timeout.or(lower.request_timeout),
            drain_timeout: self.drain_timeout.or(lower.drain_timeout),
            max_requests: self.max_requests.or(lower.max_requests),
            max_connections: self.max_connections.or(lower.max_connections),
            max_edges: self.max_edges.or(lower.max_edges),
            max_subscribers: self.max_subscribers.or(lower.max_subscribers),
            checkpoint: self.checkpoint.or(lower.checkpoint),
            max_stream_age: self.max_stream_age.or(lower.max_stream_age),
            max_card_bytes: self.max_card_bytes.or(lower.max_card_bytes),
            max_card_depth: self.max_card_depth.or(lower.max_card_depth),
            max_card_skills: self.max_card_skills.or(lower.max_card_skills),
            otlp_endpoint: self.otlp_endpoint.or(lower.otlp_endpoint),
            log_format: self.log_format.or(lower.log_format),
            log: self.log.or(lower.log),
        }
    }

    /// Checks the settings and fills in the defaults.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn check(self) -> Result<Config, Error> {
        let listen = listen(self.listen.as_deref())?;
        if !listen.ip().is_loopback() && self.insecure != Some(true) {
            return Err(Error::Insecure(listen));
        }
        let config = Config {
            listen,
            store: match (self.store, self.upstream) {
                (Some(_), Some(urls)) => {
                    let allowed = "one of store and upstream: an edge keeps no ledger";
                    return Err(invalid("upstream", &upstream("upstream", &urls)?.join(","), allowed));
                }
                (None, Some(urls)) => StoreUrl::Upstream(upstream("upstream", &urls)?),
                (store, None) => self::store(store.as_deref().unwrap_or("sqlite:cardfence.db"))?,
            },
            authority: self.authority.as_deref().map(authority).transpose()?,
            migrate: match self.migrate.as_deref() {
                None | Some("apply") => Migrate::Apply,
                Some("check") => Migrate::Check,
                Some(other) => return Err(invalid("migrate", other, "apply or check")),
            },
            pooled: self.pooled == Some(true),
            node: self.node.map(node).transpose()?,
            default_max_staleness: duration("default_max_staleness", self.default_max_staleness, 5_000)?,
            default_wait: duration("default_wait", self.default_wait, 1_000)?,
            poll: duration("poll", self.poll, 100)?,
            exchange_timeout: duration("exchange_timeout", self.exchange_timeout, 2_000)?,
            write_timeout: duration("write_timeout", self.write_timeout, 10_000)?,
            request_timeout: duration("request_timeout", self.request_timeout, 30_000)?,
            drain_timeout: duration("drain_timeout", self.drain_timeout, 10_000)?,
            max_requests: count("max_requests", self.max_requests, 4_096)?,
            max_connections: count("max_connections", self.max_connections, 16_384)?,
            max_edges: count("max_edges", self.max_edges, 256)?,
            max_subscribers: count("max_subscribers", self.max_subscribers, 20_000)?,
            checkpoint: duration("checkpoint", self.checkpoint, 5_000)?,
            max_stream_age: duration("max_stream_age", self.max_stream_age, 30 * 60 * 1_000)?,
            card: Limits {
                max_bytes: count("max_card_bytes", self.max_card_bytes, 262_144)?,
                max_depth: within("max_card_depth", self.max_card_depth, 64, &Limits::DEPTHS)?,
                max_skills: within("max_card_skills", self.max_card_skills, 1_000, &Limits::SKILLS)?,
            },
            otlp_endpoint: self.otlp_endpoint.map(endpoint).transpose()?,
            log_format: match self.log_format.as_deref() {
                None | Some("text") => LogFormat::Text,
                Some("json") => LogFormat::Json,
                Some(other) => return Err(invalid("log_format", other, "text or json")),
            },
            log: self.log.unwrap_or_else(|| "info".to_owned()),
        };
        config.checked()
    }
}

impl Config {
    fn checked(self) -> Result<Self, Error> {
        let at_most = |name, value: Duration, max: Duration| {
            let allowed = format!("at most {}", display_duration(max));
            if value > max { Err(invalid(name, &display_duration(value), &allowed)) } else { Ok(()) }
        };
        let positive = |name, value: Duration| {
            if value.is_zero() { Err(invalid(name, "0", "more than 0")) } else { Ok(()) }
        };
        at_most("default_wait", self.default_wait, Duration::from_secs(10))?;
        at_most("poll", self.poll, Duration::from_secs(60))?;
        positive("poll", self.poll)?;
        if let (Some(authority), StoreUrl::Sqlite(_) | StoreUrl::Upstream(_)) = (&self.authority, &self.store)
        {
            let allowed = "only with a store that is a PostgreSQL standby";
            return Err(invalid("authority", &authority.to_string(), allowed));
        }
        if self.pooled && self.migrate == Migrate::Apply {
            return Err(invalid(
                "migrate",
                "apply",
                "check, with pooled: migrations need the database itself",
            ));
        }
        if self.card.max_bytes > CARD_BYTES_MAX {
            let allowed = format!("at most {CARD_BYTES_MAX}: it must fit into a message");
            return Err(invalid("max_card_bytes", &self.card.max_bytes.to_string(), &allowed));
        }
        if self.pooled && matches!(self.store, StoreUrl::Upstream(_)) {
            return Err(invalid("pooled", "true", "false, with upstream: there is no database"));
        }
        // A subscriber that hears nothing for longer takes its stream for dead, and so do proxies.
        at_most("checkpoint", self.checkpoint, Duration::from_secs(15))?;
        positive("checkpoint", self.checkpoint)?;
        at_most("max_stream_age", self.max_stream_age, Duration::from_secs(86_400))?;
        positive("max_stream_age", self.max_stream_age)?;
        positive("exchange_timeout", self.exchange_timeout)?;
        positive("write_timeout", self.write_timeout)?;
        positive("request_timeout", self.request_timeout)?;
        // A refusal or an unknown outcome must be told before the request is given up, slow upload included.
        at_most("write_timeout", self.write_timeout, self.request_timeout / 2)?;
        Ok(self)
    }
}

/// The effective settings, one a line, with secrets hidden: what `--print-config` prints. It is a valid file.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let migrate = if self.migrate == Migrate::Apply { "apply" } else { "check" };
        let format = if self.log_format == LogFormat::Text { "text" } else { "json" };
        writeln!(f, "listen = \"{}\"", self.listen)?;
        let store = if matches!(self.store, StoreUrl::Upstream(_)) { "upstream" } else { "store" };
        writeln!(f, "{store} = {:?}", self.store.to_string())?;
        if let Some(authority) = &self.authority {
            writeln!(f, "authority = {:?}", authority.to_string())?;
        }
        writeln!(f, "migrate = \"{migrate}\"")?;
        writeln!(f, "pooled = {}", self.pooled)?;
        if let Some(node) = &self.node {
            writeln!(f, "node = {node:?}")?;
        }
        writeln!(f, "insecure = {}", !self.listen.ip().is_loopback())?;
        for (name, value) in [
            ("default_max_staleness", self.default_max_staleness),
            ("default_wait", self.default_wait),
            ("poll", self.poll),
            ("exchange_timeout", self.exchange_timeout),
            ("write_timeout", self.write_timeout),
            ("request_timeout", self.request_timeout),
            ("drain_timeout", self.drain_timeout),
            ("checkpoint", self.checkpoint),
            ("max_stream_age", self.max_stream_age),
        ] {
            writeln!(f, "{name} = \"{}\"", display_duration(value))?;
        }
        writeln!(f, "max_requests = {}", self.max_requests)?;
        writeln!(f, "max_connections = {}", self.max_connections)?;
        writeln!(f, "max_edges = {}", self.max_edges)?;
        writeln!(f, "max_subscribers = {}", self.max_subscribers)?;
        writeln!(f, "max_card_bytes = {}", self.card.max_bytes)?;
        writeln!(f, "max_card_depth = {}", self.card.max_depth)?;
        writeln!(f, "max_card_skills = {}", self.card.max_skills)?;
        if let Some(endpoint) = &self.otlp_endpoint {
            writeln!(f, "otlp_endpoint = {endpoint:?}")?;
        }
        writeln!(f, "log_format = \"{format}\"")?;
        writeln!(f, "log = {:?}", self.log)
    }
}

fn invalid(name: &'static str, value: &str, allowed: &str) -> Error {
    Error::Invalid { name, value: value.chars().take(100).collect(), allowed: allowed.to_owned() }
}

fn listen(text: Option<&str>) -> Result<SocketAddr, Error> {
    let Some(text) = text else { return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7878)) };
    text.parse().map_err(|_| invalid("listen", text, "an IP address and a port, such as 127.0.0.1:7878"))
}

fn store(text: &str) -> Result<StoreUrl, Error> {
    if let Some(path) = text.strip_prefix("sqlite:")
        && !path.is_empty()
        && !path.starts_with("//")
    {
        return Ok(StoreUrl::Sqlite(PathBuf::from(path)));
    }
    if Databases::is_meant(text) {
        return Databases::parse("store", text).map(StoreUrl::Postgres);
    }
    // What follows the scheme may hold a password.
    let shown = text.split(':').next().unwrap_or_default();
    Err(invalid("store", shown, "sqlite:PATH or postgres://…"))
}

fn authority(text: &str) -> Result<Authority, Error> {
    if Databases::is_meant(text) {
        return Databases::parse("authority", text).map(Authority::Postgres);
    }
    upstream("authority", text).map(Authority::Upstream)
}

/// Plain `http` URLs: no TLS is spoken yet, and to speak none where it was asked for would be worse than to refuse.
fn upstream(setting: &'static str, text: &str) -> Result<Vec<String>, Error> {
    let allowed = "http://host:port, or up to 8 of those separated by commas, without user, path or query; \
                   https is not spoken yet";
    // What follows the scheme may hold a password.
    let refused = |url: &str| invalid(setting, url.split("//").next().unwrap_or_default(), allowed);
    let urls: Vec<&str> = text.split(',').map(str::trim).collect();
    if urls.len() > UPSTREAMS_MAX {
        return Err(invalid(setting, &format!("{} URLs", urls.len()), allowed));
    }
    let checked = urls.into_iter().map(|text| {
        let url = url::Url::parse(text).map_err(|_| refused(text))?;
        let plain = url.username().is_empty() && url.password().is_none() && url.query().is_none();
        if url.scheme() == "http" && url.has_host() && plain && url.path() == "/" && url.fragment().is_none()
        {
            Ok(url.as_str().trim_end_matches('/').to_owned())
        } else {
            Err(refused(text))
        }
    });
    checked.collect()
}

/// It goes with every answer, so it is short and one line.
fn node(name: String) -> Result<String, Error> {
    if (1..=128).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(name);
    }
    let shown: String = name.escape_debug().take(100).collect();
    Err(invalid("node", &shown, "1 to 128 visible ASCII characters"))
}

/// Printed and logged, so it may hold no credentials.
fn endpoint(url: String) -> Result<String, Error> {
    let plain =
        |url: &url::Url| url.username().is_empty() && url.password().is_none() && url.query().is_none();
    match url::Url::parse(&url) {
        Ok(parsed) if matches!(parsed.scheme(), "http" | "https") && plain(&parsed) => Ok(url),
        _ => {
            let allowed = "a URL such as http://127.0.0.1:4317, without user, password or query";
            Err(invalid("otlp_endpoint", url.split(':').next().unwrap_or_default(), allowed))
        }
    }
}

fn duration(name: &'static str, text: Option<String>, default_millis: u64) -> Result<Duration, Error> {
    match text {
        None => Ok(Duration::from_millis(default_millis)),
        Some(text) => parse_duration(&text)
            .map_err(|_| invalid(name, &text, "0, or a whole number followed by ms, s, m, h or d")),
    }
}

fn count(name: &'static str, value: Option<usize>, default: usize) -> Result<usize, Error> {
    match value {
        Some(0) => Err(invalid(name, "0", "1 or more")),
        value => Ok(value.unwrap_or(default)),
    }
}

fn within(
    name: &'static str,
    value: Option<usize>,
    default: usize,
    allowed: &RangeInclusive<usize>,
) -> Result<usize, Error> {
    match value.unwrap_or(default) {
        value if allowed.contains(&value) => Ok(value),
        value => Err(invalid(name, &value.to_string(), &format!("{} to {}", allowed.start(), allowed.end()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_loopback_and_sqlite() {
        let config = Args::default().check().unwrap();
        assert_eq!(config.listen.to_string(), "127.0.0.1:7878");
        assert_eq!(config.store.to_string(), "sqlite:cardfence.db");
    }

    #[test]
    fn binding_elsewhere_without_credentials_is_refused_unless_insecure_is_said() {
        let args = |insecure| Args { listen: Some("0.0.0.0:7878".to_owned()), insecure, ..Args::default() };
        assert!(matches!(args(None).check(), Err(Error::Insecure(_))));
        assert!(matches!(args(Some(false)).check(), Err(Error::Insecure(_))));
        assert!(args(Some(true)).check().is_ok());
    }

    #[test]
    fn secrets_are_not_shown() {
        let url = "postgres://user:hunter2@db:5432/cards?sslpassword=hunter2";
        let config = Args { store: Some(url.to_owned()), ..Args::default() }.check().unwrap();
        for shown in [config.to_string(), format!("{config:?}")] {
            assert!(!shown.contains("hunter2"), "{shown}");
        }
        for broken in
            ["mysql://user:hunter2@db", "postgres:user:hunter2@db", "postgres://u:hunter2@db:port/x"]
        {
            let broken = Args { store: Some(broken.to_owned()), ..Args::default() }.check();
            assert!(!broken.unwrap_err().to_string().contains("hunter2"));
        }
    }

    #[test]
    fn an_edge_keeps_no_ledger() {
        let args = |upstream: &str| Args { upstream: Some(upstream.to_owned()), ..Args::default() };
        let config = args("http://a:7878/, http://127.0.0.1:1").check().unwrap();
        assert_eq!(
            config.store,
            StoreUrl::Upstream(vec!["http://a:7878".to_owned(), "http://127.0.0.1:1".to_owned()])
        );
        let again: Args = toml::from_str(&config.to_string()).unwrap();
        assert_eq!(again.check().unwrap().store, config.store);
        let both = Args { store: Some("sqlite:x".to_owned()), ..args("http://a:1") }.check();
        assert!(both.unwrap_err().to_string().contains("one of store and upstream"));
        for bad in [
            "https://a:1",
            "http://u:hunter2@a:1",
            "http://a:1/x",
            "a:1",
            "",
            "http://a:1,",
            "http://a?hunter2",
        ] {
            let told = args(bad).check().unwrap_err().to_string();
            assert!(told.contains("https is not spoken yet") && !told.contains("hunter2"), "{told}");
        }
        assert!(args(&["http://a:1"; 9].join(",")).check().is_err());
    }

    #[test]
    fn what_is_printed_is_a_file_that_reads_the_same() {
        let config = Args::default().check().unwrap();
        let again: Args = toml::from_str(&config.to_string()).unwrap();
        assert_eq!(again.check().unwrap().to_string(), config.to_string());
    }

    #[test]
    fn a_standby_and_its_authority_are_printed_without_secrets() {
        let standby = "postgres://reader:hunter2@standby/cards";
        let primaries = "postgres://user:hunter2@a/cards,postgres://user:hunter2@b/cards";
        let config = Args {
            store: Some(standby.to_owned()),
            authority: Some(primaries.to_owned()),
            ..Args::default()
        };
        let shown = config.check().unwrap().to_string();
        assert!(!shown.contains("hunter2"), "{shown}");
        let again: Args = toml::from_str(&shown).unwrap();
        assert_eq!(again.check().unwrap().to_string(), shown);
    }

    #[test]
    fn flags_win_over_the_file() {
        let file: Args = toml::from_str("poll = \"1s\"\nmax_requests = 7").unwrap();
        let flags = Args { poll: Some("50ms".to_owned()), ..Args::default() };
        let config = flags.over(file).check().unwrap();
        assert_eq!((config.poll, config.max_requests), (Duration::from_millis(50), 7));
        assert!(toml::from_str::<Args>("pol = \"1s\"").is_err(), "a misspelt setting is refused");
    }

    #[test]
    fn limits_of_a_card_are_settings_within_bounds() {
        let args = |depth, skills| Args { max_card_depth: depth, max_card_skills: skills, ..Args::default() };
        assert_eq!(args(None, None).check().unwrap().card, Limits::default());
        for (depth, skills, told) in [
            (Some(121), None, "max_card_depth: `121` is not allowed: 8 to 120"),
            (Some(7), None, "max_card_depth: `7` is not allowed: 8 to 120"),
            (None, Some(0), "max_card_skills: `0` is not allowed: 1 to 100000"),
            (None, Some(100_001), "max_card_skills: `100001` is not allowed: 1 to 100000"),
        ] {
            assert_eq!(args(depth, skills).check().unwrap_err().to_string(), told);
        }
        let file: Args = toml::from_str("max_card_depth = 70\nmax_card_skills = 100000").unwrap();
        let card = args(Some(120), None).over(file).check().unwrap().card;
        assert_eq!((card.max_depth, card.max_skills), (120, 100_000));
    }

    #[test]
    fn values_that_cannot_be_used_are_named() {
        let bad = [
            Args { poll: Some("0".to_owned()), ..Args::default() },
            Args { poll: Some("fast".to_owned()), ..Args::default() },
            Args { default_wait: Some("11s".to_owned()), ..Args::default() },
            Args { checkpoint: Some("16s".to_owned()), ..Args::default() },
            Args { max_stream_age: Some("0".to_owned()), ..Args::default() },
            Args { write_timeout: Some("31s".to_owned()), ..Args::default() },
            Args { listen: Some("localhost".to_owned()), ..Args::default() },
            Args { migrate: Some("yes".to_owned()), ..Args::default() },
            Args { max_requests: Some(0), ..Args::default() },
            Args { max_edges: Some(0), ..Args::default() },
            Args { max_card_bytes: Some(3_000_000), ..Args::default() },
            Args { node: Some("n".repeat(129)), ..Args::default() },
            Args { node: Some("two words".to_owned()), ..Args::default() },
            Args { otlp_endpoint: Some("http://user:hunter2@otel:4317".to_owned()), ..Args::default() },
            Args { otlp_endpoint: Some("otel".to_owned()), ..Args::default() },
            Args { store: Some("sqlite://relative.db".to_owned()), ..Args::default() },
            Args { store: Some("sqlite:".to_owned()), ..Args::default() },
            Args { log_format: Some("xml".to_owned()), ..Args::default() },
            Args { authority: Some("http://user:hunter2@node:7878".to_owned()), ..Args::default() },
            Args { authority: Some("postgres://user:hunter2@db/cards".to_owned()), ..Args::default() },
        ];
        for args in bad {
            let told = args.clone().check().expect_err("it is refused").to_string();
            assert!(!told.contains("hunter2"), "{told}");
        }
    }
}
