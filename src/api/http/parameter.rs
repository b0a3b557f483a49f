//! What a request may say besides its body: the parameters of queries, and the headers, each named once.
//!
//! A route lists the groups that it takes. The parser refuses everything else, and `/openapi.json` shows the
//! same lists, so what is documented is what is allowed.

/// One parameter of a query, or one header of a request.
#[derive(Debug)]
pub(super) struct Parameter {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) about: &'static str,
}

/// What a parameter holds, and whether it may be given more than once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    /// `true` or `false`.
    Flag,
    /// A whole number.
    Count,
    /// A whole number that must be given.
    Needed,
    /// A text that may be given more than once.
    Repeated,
    /// `<id>[;in=<mode>]…[;out=<mode>]…`, which may be given more than once.
    Skill,
}

impl Kind {
    pub(super) fn repeats(self) -> bool {
        matches!(self, Self::Repeated | Self::Skill)
    }
}

const fn parameter(name: &'static str, kind: Kind, about: &'static str) -> Parameter {
    Parameter { name, kind, about }
}

pub(super) const MAX_STALENESS: &str = "max_staleness";
pub(super) const AT_LEAST: &str = "at_least";
pub(super) const WAIT: &str = "wait";

/// What every read may demand of the view.
pub(super) const READ: &[Parameter] = &[
    parameter(
        MAX_STALENESS,
        Kind::Text,
        "A duration such as `5s`; `0` is linearizable, `any` accepts unknown",
    ),
    parameter(AT_LEAST, Kind::Text, "A position that the view must have applied"),
    parameter(
        WAIT,
        Kind::Text,
        "A duration of at most 10s that the answer may be waited for; `0`: judge now",
    ),
];

pub(super) const MIN_REVISION: &str = "min_revision";
pub(super) const MIN_VERSION: &str = "min_version";
pub(super) const SKILL: &str = "skill";
pub(super) const INPUT_MODE: &str = "input_mode";
pub(super) const OUTPUT_MODE: &str = "output_mode";
pub(super) const STREAMING: &str = "streaming";
pub(super) const PUSH_NOTIFICATIONS: &str = "push_notifications";
pub(super) const EXTENDED_CARD: &str = "extended_card";
pub(super) const EXTENSION: &str = "extension";
pub(super) const PIN: &str = "pin";
pub(super) const PIN_SKILLS: &str = "pin_skills";
pub(super) const PIN_NEGOTIATION: &str = "pin_negotiation";
pub(super) const MAX_ORIGIN_AGE: &str = "max_origin_age";
pub(super) const KNOWN: &str = "known";

/// The further conditions of a fence, and what the caller holds already.
pub(super) const CONDITIONS: &[Parameter] = &[
    parameter(MIN_REVISION, Kind::Text, "A revision number, or `<number>@<position>`"),
    parameter(MIN_VERSION, Kind::Text, "The least `version` of the card, compared as SemVer"),
    parameter(
        SKILL,
        Kind::Skill,
        "A skill that must be there, with modes: `<id>[;in=<mode>]…[;out=<mode>]…`; the id is percent-encoded",
    ),
    parameter(INPUT_MODE, Kind::Repeated, "A mode that every skill named must take"),
    parameter(OUTPUT_MODE, Kind::Repeated, "A mode that every skill named must give"),
    parameter(STREAMING, Kind::Flag, "Streaming must be on"),
    parameter(PUSH_NOTIFICATIONS, Kind::Flag, "Push notifications must be on"),
    parameter(EXTENDED_CARD, Kind::Flag, "The extended card must be on"),
    parameter(EXTENSION, Kind::Repeated, "The URI of an extension that must be there"),
    parameter(PIN, Kind::Text, "The content digest that the card must have"),
    parameter(PIN_SKILLS, Kind::Text, "The skill fingerprint that the card must have"),
    parameter(PIN_NEGOTIATION, Kind::Text, "The negotiation fingerprint that the card must have"),
    parameter(MAX_ORIGIN_AGE, Kind::Text, "A duration since the agent itself was last confirmed"),
    parameter(KNOWN, Kind::Text, "The raw digest that the caller holds; 304 when it is still current"),
];

pub(super) const AT: &str = "at";

pub(super) const PAST: &[Parameter] =
    &[parameter(AT, Kind::Text, "A position: answers with what was current there")];

pub(super) const EXPECT_REVISION: &str = "expect_revision";
pub(super) const DRY_RUN: &str = "dry_run";
pub(super) const NOTE: &str = "note";
pub(super) const WAIT_REPLICATED: &str = "wait_replicated";

/// What every write may say.
pub(super) const WRITE: &[Parameter] = &[
    parameter(EXPECT_REVISION, Kind::Text, "The revision that must be current, or `<number>@<position>`"),
    parameter(DRY_RUN, Kind::Flag, "Judge everything and write nothing"),
    parameter(NOTE, Kind::Text, "For people, at most 4,096 bytes"),
    parameter(
        WAIT_REPLICATED,
        Kind::Text,
        "A duration of at most 60s to wait, once it is done, for all replicas to apply it; `replicas` says who has",
    ),
];

pub(super) const RELEASE: &str = "release";
pub(super) const SOURCE: &str = "source";
pub(super) const TTL: &str = "ttl";

pub(super) const REGISTER: &[Parameter] = &[
    parameter(
        RELEASE,
        Kind::Text,
        "SemVer or an integer of the pipeline; a lower one than before is refused",
    ),
    parameter(SOURCE, Kind::Text, "Where the card came from, for people"),
    parameter(
        TTL,
        Kind::Text,
        "A lease, 1s to 30d: an agent that is not confirmed for so long is told as `unconfirmed`",
    ),
];

pub(super) const TO: &str = "to";
pub(super) const FROM: &str = "from";

pub(super) const ROLLBACK: &[Parameter] =
    &[parameter(TO, Kind::Needed, "The revision whose card is to be current")];

pub(super) const DIFF: &[Parameter] = &[
    parameter(FROM, Kind::Count, "A revision; the one before `to` where not given"),
    parameter(TO, Kind::Count, "A revision; the current one where not given"),
];

pub(super) const PAGE_SIZE: &str = "page_size";
pub(super) const PAGE_TOKEN: &str = "page_token";

pub(super) const PAGED: &[Parameter] = &[
    parameter(PAGE_SIZE, Kind::Count, "1 to 1000, by default 100; more is cut"),
    parameter(PAGE_TOKEN, Kind::Text, "`next_page_token` of the page before"),
];

pub(super) const NAMESPACE: &str = "namespace";
pub(super) const TAG: &str = "tag";
pub(super) const MODE: &str = "mode";
pub(super) const CAPABILITY: &str = "capability";
pub(super) const URL: &str = "url";
pub(super) const Q: &str = "q";

/// What a list may be narrowed to; all that is given must hold.
pub(super) const FILTER: &[Parameter] = &[
    parameter(NAMESPACE, Kind::Text, "A namespace"),
    parameter(SKILL, Kind::Text, "The id of a skill, exactly"),
    parameter(TAG, Kind::Text, "A tag of any skill, exactly"),
    parameter(MODE, Kind::Text, "A media type that any skill takes or gives"),
    parameter(
        CAPABILITY,
        Kind::Text,
        "`streaming`, `push_notifications`, `extended_card`, or the URI of an extension",
    ),
    parameter(URL, Kind::Text, "The URL of an interface, exactly"),
    parameter(Q, Kind::Text, "Part of a name or description of the card or of a skill, in any case"),
];

pub(super) const AGENT: &str = "agent";
pub(super) const CLASS: &str = "class";
pub(super) const CARDS: &str = "cards";

/// What a stream is to tell.
pub(super) const WATCH: &[Parameter] = &[
    parameter(AGENT, Kind::Repeated, "An agent, `namespace/name`"),
    parameter(NAMESPACE, Kind::Repeated, "A namespace"),
    parameter(
        CLASS,
        Kind::Text,
        "`breaking` or `additive`: the least class of change that is sent in full; what lies below comes as `moved`, without its card",
    ),
    parameter(CARDS, Kind::Flag, "`false`: no cards"),
    parameter(FROM, Kind::Text, "The position to go on from: the last `id` that came"),
];

pub(super) const STREAM: &str = "stream";
pub(super) const NONCE: &str = "nonce";

/// Asks for a proof on a stream that is open.
pub(super) const PROOF: &[Parameter] = &[
    parameter(STREAM, Kind::Text, "The stream on which a checkpoint with `nonce` is wanted"),
    parameter(NONCE, Kind::Text, "1 to 128 visible ASCII characters, for the checkpoint"),
];
pub(super) const WITHIN: &str = "within";

pub(super) const REPLICAS: &[Parameter] =
    &[parameter(WITHIN, Kind::Text, "Those that reported within this duration, by default 1h, at most 7d")];

pub(super) const LIMIT: &str = "limit";

pub(super) const LEDGER: &[Parameter] = &[
    parameter(FROM, Kind::Count, "The first sequence number, by default 1"),
    parameter(LIMIT, Kind::Count, "1 to 1000 entries, by default 1000; more is cut"),
];

/// Headers of every request.
pub(super) const ANY_HEADERS: &[Parameter] = &[parameter(
    "Cardfence-Nonce",
    Kind::Text,
    "1 to 128 visible ASCII characters, given back in the answer",
)];

pub(super) const READ_HEADERS: &[Parameter] = &[parameter(
    "Cache-Control",
    Kind::Text,
    "`max-age=N` and `max-stale=N` bound the staleness to N seconds, `no-cache` to 0; `only-if-cached`: wait=0",
)];

pub(super) const WATCH_HEADERS: &[Parameter] = &[parameter("Last-Event-ID", Kind::Text, "As `from`")];

pub(super) const KNOWN_HEADERS: &[Parameter] =
    &[parameter("If-None-Match", Kind::Text, "Entity tags that the caller holds; 304 when one is current")];

pub(super) const WRITE_HEADERS: &[Parameter] = &[
    parameter("If-Match", Kind::Text, "The strong entity tag of the current card: its raw or content digest"),
    parameter(
        "Idempotency-Key",
        Kind::Text,
        "1 to 128 visible ASCII characters; the same key gives the first outcome again",
    ),
];

pub(super) const CREATE_HEADERS: &[Parameter] =
    &[parameter("If-None-Match", Kind::Text, "`*`: there must be no current card")];
