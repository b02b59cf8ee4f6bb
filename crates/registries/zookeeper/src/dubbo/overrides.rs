//! Overrides by operators: nodes below `configurators`, `override://HOST[:PORT]/INTERFACE?weight=50` or
//! `?disabled=true`.

use super::url::DubboUrl;

/// An override of the weight or enablement of providers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Override {
    url: DubboUrl,
    /// True for `absent`, which applies only if the provider has no value.
    yields: bool,
}

impl Override {
    /// Parses an override URL; returns `None` if it is not for providers, or is disabled.
    pub(crate) fn of(url: DubboUrl) -> Option<Self> {
        let yields = match url.scheme.as_str() {
            "override" => false,
            "absent" => true,
            _ => return None,
        };
        let for_consumers = url.parameter("side") == Some("consumer");
        (!url.is_unset("enabled") && !for_consumers).then_some(Self { url, yields })
    }

    /// Returns the value of a provider's parameter in this override.
    fn value<'a>(&'a self, provider: &DubboUrl, name: &str) -> Option<&'a str> {
        let given = self.url.parameter(name)?;
        let yields = self.yields && provider.parameter(name).is_some();
        (self.is_for(provider) && !yields).then_some(given)
    }

    fn is_for(&self, provider: &DubboUrl) -> bool {
        let own = &self.url;
        let host = own.host == "0.0.0.0" || own.host == "*" || own.host == provider.host;
        let port = own.port == 0 || own.port == provider.port;
        let same = |name| match own.parameter(name) {
            None | Some("*") => true,
            Some(value) => provider.parameter(name) == Some(value),
        };
        // Unlike application, group and version identify the overridden service: without them the override
        // applies to providers without them.
        let part = |name| own.parameter(name) == Some("*") || own.parameter(name) == provider.parameter(name);
        host && port && same("application") && part("group") && part("version")
    }
}

/// Returns the value of a provider's parameter after all overrides; the last one wins.
pub(crate) fn effective<'a>(
    provider: &'a DubboUrl,
    overrides: &'a [Override],
    name: &str,
) -> Option<&'a str> {
    let given = overrides.iter().rev().find_map(|it| it.value(provider, name));
    given.or_else(|| provider.parameter(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> DubboUrl {
        DubboUrl::parse(text).unwrap()
    }

    #[test]
    fn overrides_are_for_the_providers_that_they_name() {
        let plain = "dubbo://10.0.0.1:20880/a.B?application=shop&weight=100";
        let grouped = "dubbo://10.0.0.1:20880/a.B?application=shop&group=g&version=1&weight=100";
        let bare = "dubbo://10.0.0.1:20880/a.B";
        #[rustfmt::skip]
        let table = [
            (plain, "override://0.0.0.0/a.B?weight=7", Some("7")),
            (plain, "override://10.0.0.1/a.B?weight=7", Some("7")),
            (plain, "override://10.0.0.1:20880/a.B?weight=7", Some("7")),
            (plain, "override://10.0.0.1:20881/a.B?weight=7", Some("100")),
            (plain, "override://10.0.0.2/a.B?weight=7", Some("100")),
            (plain, "override://0.0.0.0/a.B?weight=7&enabled=false", Some("100")),
            (plain, "override://0.0.0.0/a.B?weight=7&application=shop", Some("7")),
            (plain, "override://0.0.0.0/a.B?weight=7&application=cart", Some("100")),
            (plain, "override://0.0.0.0/a.B?weight=7&side=consumer", Some("100")),
            (plain, "override://0.0.0.0/a.B?timeout=7", Some("100")),
            (plain, "absent://0.0.0.0/a.B?weight=7", Some("100")),
            (bare, "absent://0.0.0.0/a.B?weight=7", Some("7")),
            (bare, "empty://0.0.0.0/a.B?weight=7", None),
            (grouped, "override://0.0.0.0/a.B?weight=7", Some("100")),
            (grouped, "override://0.0.0.0/a.B?weight=7&group=g&version=1", Some("7")),
            (grouped, "override://0.0.0.0/a.B?weight=7&group=*&version=*", Some("7")),
        ];
        for (provider, text, want) in table {
            let provider = url(provider);
            let overrides: Vec<Override> = Override::of(url(text)).into_iter().collect();
            assert_eq!(effective(&provider, &overrides, "weight"), want, "{text}");
        }
    }

    #[test]
    fn the_last_override_counts() {
        let overrides = ["override://0.0.0.0/a.B?weight=1", "override://0.0.0.0/a.B?weight=2"];
        let overrides: Vec<Override> =
            overrides.into_iter().filter_map(|text| Override::of(url(text))).collect();
        assert_eq!(effective(&url("dubbo://10.0.0.1:1/a.B"), &overrides, "weight"), Some("2"));
    }
}
