//! Names of services, and the hosts that they become.

/// Separator of group and service name.
pub const SEPARATOR: &str = "@@";
/// The default group of services.
pub const DEFAULT_GROUP: &str = "DEFAULT_GROUP";
/// The id of the default namespace.
pub const DEFAULT_NAMESPACE: &str = "public";
/// The default pattern of host names.
pub const DEFAULT_HOST: &str = "{service}.{group}.{namespace}.nacos";

/// A part of a host pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Service,
    Group,
    Namespace,
}

/// Pattern of host names, as in `{service}.{group}.{namespace}.nacos`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPattern(Vec<Part>);

impl HostPattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// With what is wrong, in a few words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let (field, behind) = after.split_once('}').ok_or("a { has no }")?;
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            parts.push(match field {
                "service" => Part::Service,
                "group" => Part::Group,
                "namespace" => Part::Namespace,
                _ => return Err("only {service}, {group} and {namespace} can be filled in".to_owned()),
            });
            rest = behind;
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        if parts.contains(&Part::Service) {
            Ok(Self(parts))
        } else {
            Err("{service} is not in it".to_owned())
        }
    }

    /// Returns the host of a service. Groups and namespaces become one DNS label each.
    #[must_use]
    pub fn host(&self, namespace: &str, group: &str, service: &str) -> String {
        let parts = self.0.iter().map(|part| match part {
            Part::Text(text) => text.clone(),
            Part::Service => service.to_owned(),
            Part::Group => label(group),
            Part::Namespace => label(namespace),
        });
        parts.collect::<String>().to_lowercase()
    }
}

/// Converts a name to a DNS label: `DEFAULT_GROUP` becomes `default-group`; characters other than letters and
/// digits become `-`.
fn label(text: &str) -> String {
    let known = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    text.chars().map(known).collect()
}

/// Returns the name of a service without its group prefix.
#[must_use]
pub fn plain_name<'a>(group: &str, name: &'a str) -> &'a str {
    let rest = name.strip_prefix(group).and_then(|rest| rest.strip_prefix(SEPARATOR));
    rest.unwrap_or(name)
}

/// Splits `GROUP@@NAME`; a group in the name takes precedence over the given group.
#[must_use]
pub fn split_name<'a>(group: &'a str, name: &'a str) -> (&'a str, &'a str) {
    name.split_once(SEPARATOR).unwrap_or((group, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_with_their_group_or_without() {
        assert_eq!(plain_name("G", "G@@web"), "web");
        assert_eq!(plain_name("G", "web"), "web");
        assert_eq!(plain_name("G", "GG@@web"), "GG@@web");
        assert_eq!(split_name("G", "H@@web"), ("H", "web"));
        assert_eq!(split_name("G", "web"), ("G", "web"));
        assert_eq!(split_name("", "G@@a@@b"), ("G", "a@@b"));
    }

    #[test]
    fn hosts_are_made_by_the_pattern() {
        for (pattern, service, want) in [
            (DEFAULT_HOST, ("public", "DEFAULT_GROUP", "web"), "web.default-group.public.nacos"),
            (DEFAULT_HOST, ("3f2a-Dev", "g.h", "Web"), "web.g-h.3f2a-dev.nacos"),
            (DEFAULT_HOST, ("public", "G", "com.acme.Orders:1.0"), "com.acme.orders:1.0.g.public.nacos"),
            ("{service}", ("public", "G", "web.shop.example"), "web.shop.example"),
            ("x-{service}.{namespace}", ("n", "g", "web"), "x-web.n"),
        ] {
            let (namespace, group, name) = service;
            assert_eq!(HostPattern::parse(pattern).unwrap().host(namespace, group, name), want);
        }
        for (pattern, want) in [
            ("{group}", "{service} is not in it"),
            ("", "{service} is not in it"),
            ("{service", "a { has no }"),
            ("{service}.{cluster}", "only {service}, {group} and {namespace} can be filled in"),
        ] {
            assert_eq!(HostPattern::parse(pattern), Err(want.to_owned()), "{pattern}");
        }
    }
}
