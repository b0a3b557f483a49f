//! Where databases are: how their URLs are written, checked, and shown without their secrets.
//!
//! One URL or several with commas between them, tried in order; the driver knows no URL with several hosts. A comma
//! separates only before a scheme, since a password may hold one.

use std::fmt;

use super::{Error, invalid};

const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

const ALLOWED: &str = "a URL such as postgres://user:password@host:5432/database, \
                       or several with commas between them, one host each";

/// PostgreSQL databases of one ledger, in the order in which they are tried. Held whole, passwords included:
/// `Display` and `Debug` hide them.
#[derive(Clone, PartialEq, Eq)]
pub struct Databases(Vec<String>);

impl Databases {
    /// Whether `text` is meant to name databases.
    pub(super) fn is_meant(text: &str) -> bool {
        SCHEMES.iter().any(|scheme| text.starts_with(scheme))
    }

    /// The databases of setting `name`.
    pub(super) fn parse(name: &'static str, text: &str) -> Result<Self, Error> {
        let mut urls: Vec<String> = Vec::new();
        for part in text.split(',') {
            match urls.last_mut() {
                Some(last) if !Self::is_meant(part) => {
                    last.push(',');
                    last.push_str(part);
                }
                _ => urls.push(part.to_owned()),
            }
        }
        let sound = |url: &String| {
            let url = url::Url::parse(url).ok()?;
            let plain = |part: Option<&str>| !part.unwrap_or_default().contains(',');
            (plain(url.host_str()) && plain(Some(url.path()))).then_some(())
        };
        if urls.iter().all(|url| sound(url).is_some()) {
            return Ok(Self(urls));
        }
        // The text may hold a password.
        Err(invalid(name, "postgres://…", ALLOWED))
    }

    pub fn urls(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Display for Databases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, url) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str(",")?;
            }
            f.write_str(&shown(url))?;
        }
        Ok(())
    }
}

impl fmt::Debug for Databases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A URL without password and parameters, which may hold secrets, too.
fn shown(url: &str) -> String {
    let hidden = || "postgres://***".to_owned();
    let Ok(mut url) = url::Url::parse(url) else { return hidden() };
    if url.password().is_some() && url.set_password(Some("***")).is_err() {
        return hidden();
    }
    url.set_query(None);
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<String>, String> {
        let databases = Databases::parse("store", text).map_err(|error| error.to_string())?;
        Ok(databases.urls().map(str::to_owned).collect())
    }

    #[test]
    fn several_databases_are_written_with_commas_and_kept_in_order() {
        let urls = ["postgres://u:p@a:1/db", "postgresql://u:p@b:2/db"];
        assert_eq!(parsed(&urls.join(",")).unwrap(), urls);
        assert_eq!(
            parsed("postgres://u:p,q@a/db").unwrap(),
            ["postgres://u:p,q@a/db"],
            "a comma in a password"
        );
    }

    #[test]
    fn what_is_no_list_of_urls_is_refused_without_its_secrets() {
        for broken in [
            "postgres://u:hunter2@a/db,",
            "postgres://u:hunter2@a/db,b",
            "postgres://u:hunter2@a,b/db",
            "postgres://u:hunter2@a/db, postgres://u:hunter2@b/db",
            "postgres://u:hunter2@a/db,mysql://u:hunter2@b/db",
            "postgres://u:hunter2@a:port/db,postgres://b/db",
        ] {
            let told = parsed(broken).expect_err(broken);
            assert!(!told.contains("hunter2") && told.contains("store"), "{told}");
        }
    }

    #[test]
    fn no_password_of_any_is_shown() {
        let text = "postgres://u:hunter2@a:1/db?sslpassword=hunter2,postgres://u:hunter2@b/db";
        let databases = Databases::parse("store", text).unwrap();
        for shown in [databases.to_string(), format!("{databases:?}")] {
            assert_eq!(shown, "postgres://u:***@a:1/db,postgres://u:***@b/db");
        }
    }
}
