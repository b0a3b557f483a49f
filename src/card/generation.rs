//! Which A2A generation a document is of.
//!
//! Owns the rules that tell the generations apart, by the members a document has. The path it was found
//! under and what its texts say are no evidence. What a card *speaks* is a separate fact: a v1.0 body may
//! name a 0.3 endpoint, and a v0.3 body may claim 1.x; see [`Interface::version`](super::Interface).

use super::node::Node;
use super::view::View;
use super::words::vocabulary;

vocabulary! {
    /// The generation of a card's body.
    Generation {
        V0_1 = "v0.1",
        V0_2 = "v0.2",
        V0_3 = "v0.3",
        /// A v0.3 body whose `protocolVersion` is 1.x.
        V0_3ClaimsV1 = "v0.3-shape-claims-1.x",
        /// The shapes between v0.3 and v1.0: `supportedInterfaces` beside `protocolVersions`.
        V1_0Dev = "v1.0-dev",
        V1_0 = "v1.0",
        /// v1.0 and v0.x members in one body, as official servers emit it for old clients.
        Superset = "superset",
    }
}

vocabulary! {
    /// Which members a reader must look at to find the endpoints.
    Shape {
        /// `url`, `preferredTransport`, `additionalInterfaces`.
        V0 = "v0.x",
        /// `supportedInterfaces`.
        V1 = "v1.0",
        /// Both.
        Superset = "superset",
    }
}

impl Generation {
    pub const fn shape(self) -> Shape {
        match self {
            Self::V0_1 | Self::V0_2 | Self::V0_3 | Self::V0_3ClaimsV1 => Shape::V0,
            Self::V1_0Dev | Self::V1_0 => Shape::V1,
            Self::Superset => Shape::Superset,
        }
    }

    /// The protocol version that a v0.x interface of this generation speaks when the card does not say.
    pub(super) const fn default_version(self) -> &'static str {
        match self {
            Self::V0_1 => "0.1",
            Self::V0_2 => "0.2",
            _ => "0.3",
        }
    }

    /// The generation of the document `root`, or none when it has no endpoint in any of the known places.
    pub(super) fn of(root: &View<'_, '_>) -> Option<Self> {
        let interfaces = root.find("supportedInterfaces").and_then(|found| found.value.as_array());
        if interfaces.is_some_and(|entries| entries.iter().any(|entry| entry.as_object().is_some())) {
            return Some(Self::of_v1(root));
        }
        root.find("url")?.value.as_text().map(|_| Self::of_v0(root))
    }

    fn of_v1(root: &View<'_, '_>) -> Self {
        if ["url", "preferredTransport", "additionalInterfaces"].iter().any(|name| filled(root, name)) {
            return Self::Superset;
        }
        match root.find("protocolVersions") {
            Some(found) if found.value.as_array().is_some() => Self::V1_0Dev,
            _ => Self::V1_0,
        }
    }

    fn of_v0(root: &View<'_, '_>) -> Self {
        let claimed =
            root.find("protocolVersion").and_then(|found| ProtocolVersion::parse(found.value.as_text()?));
        let signed = root.has("signatures");
        match claimed {
            Some(ProtocolVersion { major: 1.., .. }) => Self::V0_3ClaimsV1,
            Some(ProtocolVersion { minor: 3.., .. }) => Self::V0_3,
            // 0.2.7 to 0.2.9 were never released, but the sample cards of three specifications say 0.2.9.
            Some(ProtocolVersion { minor: 2, patch: 7.., .. }) => Self::V0_3,
            Some(ProtocolVersion { minor: 2, .. }) if signed => Self::V0_3,
            Some(ProtocolVersion { minor: 2, .. }) => Self::V0_2,
            Some(_) => Self::V0_1,
            None => Self::by_members(root, signed),
        }
    }

    fn by_members(root: &View<'_, '_>, signed: bool) -> Self {
        const SINCE_V0_2: [&str; 6] = [
            "securitySchemes",
            "security",
            "preferredTransport",
            "additionalInterfaces",
            "supportsAuthenticatedExtendedCard",
            "iconUrl",
        ];
        let authentication = root.find("authentication").and_then(|found| found.value.member("schemes"));
        if matches!(authentication, Some(Node::Array(_))) {
            return Self::V0_1;
        }
        if signed {
            return Self::V0_3;
        }
        let described = root.has("description") && root.has("defaultInputModes");
        match described || SINCE_V0_2.iter().any(|name| root.has(name)) {
            true => Self::V0_2,
            false => Self::V0_1,
        }
    }
}

/// Whether a member says anything: an empty text or list is how some serialisers write "absent".
fn filled(root: &View<'_, '_>, name: &str) -> bool {
    root.find(name).is_some_and(|found| match found.value {
        Node::Text(text) => !text.trim().is_empty(),
        Node::Array(items) => !items.is_empty(),
        _ => true,
    })
}

/// A protocol version as cards write it: `N`, `N.N` or `N.N.N`, perhaps after a `v`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProtocolVersion {
    major: u32,
    minor: u32,
    patch: u32,
}

impl ProtocolVersion {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let text = text.strip_prefix('v').unwrap_or(text);
        let digits = |part: &str| part.bytes().all(|b| b.is_ascii_digit()).then(|| part.parse().ok())?;
        let mut parts = text.split('.');
        let major = digits(parts.next()?)?;
        let minor = parts.next().map_or(Some(0), digits)?;
        let patch = parts.next().map_or(Some(0), digits)?;
        parts.next().is_none().then_some(Self { major, minor, patch })
    }

    /// `Major.Minor`, as interfaces name it.
    pub(super) fn major_minor(self) -> String {
        format!("{}.{}", self.major, self.minor)
    }
}
