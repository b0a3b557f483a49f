//! Media types as A2A cards use them.
//!
//! Owns how two of them compare: case does not matter, parameters do not matter, and a wildcard is a
//! promise that only a card can make. Bare words such as `text` are media types here, and match themselves.

/// `mode` without parameters, trimmed, in lower case.
pub fn normalise(mode: &str) -> String {
    essence(mode).to_ascii_lowercase()
}

/// `mode` without parameters and trimmed.
fn essence(mode: &str) -> &str {
    mode.split(';').next().unwrap_or_default().trim()
}

/// Whether a card that offers `card_mode` takes or gives `wanted_mode`.
///
/// `type/*` and `*/*` in the card stand for all that they cover. In what is wanted they ask for all of it,
/// so only an equal or wider entry of the card will do.
///
/// ```
/// use cardfence::card::modes::accepts;
///
/// assert!(accepts("Text/*", "text/plain; charset=utf-8"));
/// assert!(!accepts("text/plain", "text/*"));
/// ```
pub fn accepts(card_mode: &str, wanted_mode: &str) -> bool {
    // A resolve compares modes, so nothing is allocated here.
    let (offered, wanted) = (essence(card_mode), essence(wanted_mode));
    if wanted.is_empty() {
        return false;
    }
    if offered.eq_ignore_ascii_case(wanted) || offered == "*/*" {
        return true;
    }
    let Some(kind) = offered.strip_suffix("/*").filter(|kind| *kind != "*" && !kind.is_empty()) else {
        return false;
    };
    let Some((wanted_kind, rest)) = wanted.split_once('/') else { return false };
    wanted_kind.eq_ignore_ascii_case(kind) && !rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_is_one_in_the_card_only() {
        for (card, wanted, accepted) in [
            ("text/plain", "text/plain", true),
            ("TEXT/Plain", " text/plain ; charset=utf-8", true),
            ("text/plain;charset=utf-8", "text/plain", true),
            ("text/plain", "text/markdown", false),
            ("text/*", "text/markdown", true),
            ("text/*", "text/*", true),
            ("text/*", "text", false),
            ("text/*", "text/", false),
            ("text/*", "textual/plain", false),
            ("text/*", "*/*", false),
            ("text/plain", "text/*", false),
            ("text/plain", "*/*", false),
            ("*/*", "text/plain", true),
            ("*/*", "text/*", true),
            ("*/*", "*/*", true),
            ("*/*", "text", true),
            ("text", "text", true),
            ("text", "text/plain", false),
            ("*/json", "application/json", false),
            ("/*", "/x", false),
            ("", "", false),
            ("*/*", "", false),
        ] {
            assert_eq!(accepts(card, wanted), accepted, "{card} {wanted}");
        }
    }
}
