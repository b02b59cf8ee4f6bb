//! Parameters of HTTP requests: those of the query, and those of a form.

use crate::record::Given;
use crate::service::{Scope, ServiceId};
use http::header::CONTENT_TYPE;
use http::request::Parts;
use pilotfish_nacos_wire::DEFAULT_CLUSTER;
use pilotfish_registration_server::Failure;
use std::collections::BTreeMap;
use std::str::FromStr;

/// Parameters of a request. They may hold a password.
pub(crate) struct Params(BTreeMap<String, String>);

impl Params {
    /// Reads the query and the form of a request; the query takes precedence.
    pub(crate) fn read(parts: &Parts, body: &[u8]) -> Self {
        let query = parts.uri.query().unwrap_or_default();
        let mut params = BTreeMap::new();
        if is_form(parts) {
            params.extend(form_urlencoded::parse(body).into_owned());
        }
        params.extend(form_urlencoded::parse(query.as_bytes()).into_owned());
        Self(params)
    }

    /// Returns a parameter that is not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|text| !text.is_empty())
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.get(name).unwrap_or_default()
    }

    pub(crate) fn required(&self, name: &str) -> Result<&str, Failure> {
        self.get(name).ok_or_else(|| Failure::invalid(format!("Param '{name}' is required.")))
    }

    /// Parses a parameter, if it is there.
    pub(crate) fn parse<T: FromStr>(&self, name: &str) -> Result<Option<T>, Failure> {
        let Some(text) = self.get(name) else { return Ok(None) };
        let wrong = |_| {
            let shown: String = text.chars().take(63).collect();
            Failure::invalid(format!("Param '{name}' is illegal: {shown:?}"))
        };
        text.trim().parse().map(Some).map_err(wrong)
    }

    pub(crate) fn scope(&self) -> Result<Scope, Failure> {
        Scope::read(self.text("namespaceId"), self.text("groupName"))
    }

    pub(crate) fn service(&self) -> Result<ServiceId, Failure> {
        let name = self.required("serviceName")?;
        ServiceId::read(self.text("namespaceId"), self.text("groupName"), name)
    }

    /// Returns address, port and cluster of an instance.
    pub(crate) fn place(&self) -> Result<(&str, u32, &str), Failure> {
        let port = self.parse("port")?.ok_or_else(|| Failure::invalid("Param 'port' is required."))?;
        let cluster = self.get("clusterName").or(self.get("cluster")).unwrap_or(DEFAULT_CLUSTER);
        Ok((self.required("ip")?, port, cluster))
    }

    /// Returns what a request says of an instance.
    pub(crate) fn instance(&self) -> Result<Given, Failure> {
        let (ip, port, cluster) = self.place()?;
        Ok(Given {
            weight: self.parse("weight")?.unwrap_or(1.0),
            healthy: self.parse("healthy")?.or(self.parse("valid")?).unwrap_or(true),
            enabled: self.enabled()?.unwrap_or(true),
            ephemeral: self.parse("ephemeral")?.unwrap_or(true),
            metadata: self.metadata()?.unwrap_or_default(),
            ..Given::new(ip, port, cluster)
        })
    }

    pub(crate) fn enabled(&self) -> Result<Option<bool>, Failure> {
        Ok(self.parse("enabled")?.or(self.parse("enable")?))
    }

    /// Returns the metadata, from a JSON object or `KEY=VALUE,...`.
    pub(crate) fn metadata(&self) -> Result<Option<BTreeMap<String, String>>, Failure> {
        let Some(text) = self.get("metadata") else { return Ok(None) };
        if let Ok(found) = serde_json::from_str::<BTreeMap<String, Option<String>>>(text) {
            let given = found.into_iter().filter_map(|(key, value)| Some((key, value?)));
            return Ok(Some(given.collect()));
        }
        let pair = |pair: &str| {
            let (key, value) = pair.split_once('=')?;
            Some((key.trim().to_owned(), value.trim().to_owned()))
        };
        let pairs: Option<BTreeMap<String, String>> = text.split(',').map(pair).collect();
        let wrong =
            || Failure::invalid("Param 'metadata' is illegal: neither a JSON object nor KEY=VALUE,...");
        pairs.map(Some).ok_or_else(wrong)
    }
}

/// True if the body is a form, or nothing says what it is.
pub(crate) fn is_form(parts: &Parts) -> bool {
    let media = parts.headers.get(CONTENT_TYPE).and_then(|media| media.to_str().ok());
    media.is_none_or(|media| media.to_ascii_lowercase().starts_with("application/x-www-form-urlencoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params(query: &str, body: &str) -> Params {
        let request = http::Request::builder().uri(format!("/x?{query}")).body(()).unwrap();
        Params::read(&request.into_parts().0, body.as_bytes())
    }

    #[test]
    fn a_form_adds_to_the_query() {
        let found =
            params("serviceName=G%40%40web&ip=10.0.0.1", "port=80&ip=10.0.0.2&weight=0.5&enabled=false");
        assert_eq!(found.service().unwrap().to_string(), "public/G@@web");
        let given = found.instance().unwrap();
        assert_eq!((&*given.ip, given.port, &*given.cluster), ("10.0.0.1", 80, "DEFAULT"));
        assert_eq!((given.weight, given.enabled, given.ephemeral), (0.5, false, true));
    }

    #[test]
    fn metadata_has_two_forms() {
        for (text, want) in [
            ("%7B%22a%22:%22b%22,%22c%22:null%7D", Some("a=b")),
            ("a=b,c=d", Some("a=b c=d")),
            ("", Some("none")),
            ("a", None),
            ("%7B", None),
        ] {
            let found = params(&format!("metadata={text}"), "").metadata();
            let shown = found.ok().map(|found| match found {
                Some(map) => {
                    map.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
                }
                None => "none".to_owned(),
            });
            assert_eq!(shown.as_deref(), want, "{text}");
        }
    }

    #[test]
    fn wrong_parameters_are_named() {
        for (query, message) in [
            ("ip=10.0.0.1&port=80", "Param 'serviceName' is required."),
            ("serviceName=a&port=80", "Param 'ip' is required."),
            ("serviceName=a&ip=10.0.0.1", "Param 'port' is required."),
            ("serviceName=a&ip=10.0.0.1&port=x", "Param 'port' is illegal: \"x\""),
            ("serviceName=a&ip=10.0.0.1&port=1&ephemeral=2", "Param 'ephemeral' is illegal: \"2\""),
        ] {
            let found = params(query, "");
            let error = found.service().and_then(|_| found.instance()).unwrap_err();
            assert_eq!(error.message(), message);
        }
    }
}
