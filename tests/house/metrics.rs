//! The names of metrics, in the code that defines them and in the table that documents them.
//!
//! A counter is defined without the suffix `_total` that the exposition format gives it; the README may show
//! either.

use std::collections::BTreeSet;

const PREFIX: &str = "cardfence_";

/// Names in the text of the module that defines the metrics.
pub(crate) fn defined(code: &str) -> BTreeSet<String> {
    code.split('"').skip(1).step_by(2).flat_map(names).collect()
}

/// Names in the tables of the README.
pub(crate) fn listed(readme: &str) -> BTreeSet<String> {
    readme.lines().filter(|line| line.starts_with('|')).flat_map(names).collect()
}

fn names(text: &str) -> impl Iterator<Item = String> {
    text.match_indices(PREFIX).filter_map(|(start, _)| {
        let name = &text[start..];
        let end = name.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap_or(name.len());
        let name = name[..end].strip_suffix("_total").unwrap_or(&name[..end]);
        (name.len() > PREFIX.len()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_strings_and_from_tables() {
        let code = r#"//! cardfence_not_this
            registry.register("cardfence_requests", "Requests, as in cardfence_requests", requests);
            let prefix = "cardfence_";"#;
        assert_eq!(defined(code), BTreeSet::from(["cardfence_requests".to_owned()]));
        let readme = "`cardfence_elsewhere`\n| `cardfence_requests_total` | counter |\n|---|---|";
        assert_eq!(listed(readme), defined(code));
    }
}
