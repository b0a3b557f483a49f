//! What is wrong with a document, and what is odd about it.
//!
//! Owns the two vocabularies, the two lists, and their bound: a hostile document may hold a hundred
//! thousand faults below a key of a hundred thousand bytes, and a list of all of them would be larger
//! than memory. So both lists end after [`MOST`] findings or [`MOST_TEXT`] bytes, and say that they do.

use super::words::vocabulary;

/// The longest list of violations, and of warnings.
const MOST: usize = 100;

/// The most text that one list holds, in bytes, before its last finding.
const MOST_TEXT: usize = 64 * 1024;

vocabulary! {
    /// Why a document is refused.
    Code {
        TooLarge = "too_large",
        NotUtf8 = "not_utf8",
        Syntax = "syntax",
        NotAnObject = "not_an_object",
        TooDeep = "too_deep",
        DuplicateKey = "duplicate_key",
        AliasConflict = "alias_conflict",
        LoneSurrogate = "lone_surrogate",
        IntegerOutOfRange = "integer_out_of_range",
        NumberOverflow = "number_overflow",
        NumberUnderflow = "number_underflow",
        NameMissing = "name_missing",
        EndpointMissing = "endpoint_missing",
        SkillIdMissing = "skill_id_missing",
        SkillIdDuplicate = "skill_id_duplicate",
        TooManySkills = "too_many_skills",
        TooManyModes = "too_many_modes",
        /// A text that a fence reads.
        TooLong = "too_long",
        WrongType = "wrong_type",
        /// Two statements of one thing that a fence reads, and that differ.
        Contradiction = "contradiction",
        /// The list of violations ends here although there are more.
        MoreViolations = "more_violations",
    }
}

vocabulary! {
    /// What is odd about a document that is accepted.
    Oddity {
        /// A snake_case name where A2A's JSON says camelCase.
        SnakeCaseName = "snake_case_name",
        /// `null` where the member should be absent.
        NullMember = "null_member",
        /// A member of v0.x in a card of v1.0's shape.
        LegacyMember = "legacy_member",
        /// A member of v1.0 in a card of v0.x's shape.
        LaterMember = "later_member",
        /// A v0.x security scheme or requirement in a v1.0 card, or the reverse.
        MixedSecurityShape = "mixed_security_shape",
        /// Two statements of the security requirements that do not agree.
        SecurityDisagrees = "security_disagrees",
        /// A security scheme of no kind that A2A defines.
        SchemeUnknown = "scheme_unknown",
        /// A statement about security that A2A does not define, or not there; kept whole.
        SecurityUndefined = "security_undefined",
        /// A text of the wrong type, read as absent: no fence depends on it.
        UnexpectedType = "unexpected_type",
        VersionMissing = "version_missing",
        UrlRelative = "url_relative",
        UrlNotHttp = "url_not_http",
        /// An interface without a URL, left out of the normal form.
        UrlMissing = "url_missing",
        BindingMissing = "binding_missing",
        ProtocolVersionMissing = "protocol_version_missing",
        /// A protocol version that is not `Major.Minor`.
        ProtocolVersionUnreadable = "protocol_version_unreadable",
        /// A v0.3 body that says it speaks 1.x.
        ClaimsLaterVersion = "claims_later_version",
        ExtensionUriMissing = "extension_uri_missing",
        /// The list of warnings ends here although there are more.
        MoreWarnings = "more_warnings",
    }
}

/// One reason to refuse a document, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    pub code: Code,
    /// An RFC 6901 JSON Pointer; empty for the whole document.
    pub pointer: String,
    /// What was found and what is allowed: lower case, no full stop.
    pub message: String,
}

/// One oddity of an accepted document, and where it lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    pub code: Oddity,
    /// An RFC 6901 JSON Pointer; empty for the whole document.
    pub pointer: String,
    /// What was found and how it is read: lower case, no full stop.
    pub message: String,
}

/// Both lists, while a document is read.
#[derive(Debug, Default)]
pub(super) struct Findings {
    violations: Vec<Violation>,
    violation_text: usize,
    warnings: Vec<Warning>,
    warning_text: usize,
}

impl Findings {
    /// Notes a violation. Pointer and message are only made when there is room for them.
    pub(super) fn refuse(
        &mut self,
        code: Code,
        pointer: impl FnOnce() -> String,
        message: impl FnOnce() -> String,
    ) {
        let full = self.violations.len() >= MOST || self.violation_text >= MOST_TEXT;
        let violation = match (full, self.violations.last().map(|last| last.code)) {
            (true, Some(Code::MoreViolations)) => return,
            (true, _) => Violation {
                code: Code::MoreViolations,
                pointer: String::new(),
                message: format!("there are more violations than the {} listed", self.violations.len()),
            },
            (false, _) => Violation { code, pointer: pointer(), message: message() },
        };
        self.violation_text += violation.pointer.len() + violation.message.len();
        self.violations.push(violation);
    }

    /// Notes a warning, under the same bound.
    pub(super) fn warn(
        &mut self,
        code: Oddity,
        pointer: impl FnOnce() -> String,
        message: impl FnOnce() -> String,
    ) {
        let full = self.warnings.len() >= MOST || self.warning_text >= MOST_TEXT;
        let warning = match (full, self.warnings.last().map(|last| last.code)) {
            (true, Some(Oddity::MoreWarnings)) => return,
            (true, _) => Warning {
                code: Oddity::MoreWarnings,
                pointer: String::new(),
                message: format!("there are more warnings than the {} listed", self.warnings.len()),
            },
            (false, _) => Warning { code, pointer: pointer(), message: message() },
        };
        self.warning_text += warning.pointer.len() + warning.message.len();
        self.warnings.push(warning);
    }

    pub(super) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    pub(super) fn into_parts(self) -> (Vec<Violation>, Vec<Warning>) {
        (self.violations, self.warnings)
    }
}

/// `value` as an error message shows it: quoted, and cut when it is long.
pub(super) fn shown(value: &str) -> String {
    const LONGEST: usize = 60;
    match value.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("`{}…`", &value[..end]),
        None => format!("`{value}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_ends_and_says_so() {
        let mut findings = Findings::default();
        for n in 0..10_000 {
            findings.refuse(Code::DuplicateKey, || format!("/{n}"), String::new);
            findings.warn(Oddity::NullMember, || format!("/{n}"), String::new);
        }
        let (violations, warnings) = findings.into_parts();
        assert_eq!((violations.len(), warnings.len()), (MOST + 1, MOST + 1));
        assert_eq!(violations[MOST].code, Code::MoreViolations);
        assert_eq!(warnings[MOST].code, Oddity::MoreWarnings);
    }

    #[test]
    fn long_pointers_end_the_list_early() {
        let mut findings = Findings::default();
        for _ in 0..50 {
            findings.refuse(Code::NumberOverflow, || "k".repeat(MOST_TEXT), String::new);
        }
        assert_eq!(findings.into_parts().0.len(), 2);
    }

    #[test]
    fn a_long_value_is_cut_at_a_character() {
        assert_eq!(shown("ab"), "`ab`");
        assert_eq!(shown(&"ü".repeat(61)), format!("`{}…`", "ü".repeat(60)));
    }
}
