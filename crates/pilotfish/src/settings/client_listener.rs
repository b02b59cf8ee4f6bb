//! Settings that the listeners for clients of other products share.

use super::check::Check;
use super::{RegistrationSettings, parse};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

/// Product and flags of a listener.
pub(super) struct ClientListener {
    /// Name of the product, as in `Eureka`.
    pub(super) product: &'static str,
    pub(super) address: &'static str,
    pub(super) plaintext: &'static str,
    pub(super) namespace: &'static str,
    pub(super) service_port: &'static str,
}

/// Registration, which the listeners need.
#[derive(Clone, Copy)]
pub(super) struct Registration<'a> {
    /// `None` without registration, or where its settings are wrong.
    pub(super) settings: Option<&'a RegistrationSettings>,
    pub(super) is_wanted: bool,
}

impl ClientListener {
    /// Notes flags that have no effect without the address.
    pub(super) fn unused(&self, given: &[(&str, Option<&str>)], check: &mut Check) {
        let Self { product, address, .. } = self;
        for (flag, value) in given.iter().filter_map(|(flag, value)| Some((flag, (*value)?))) {
            check.wrong(flag, value, &format!("nothing is served to clients of {product} without {address}"));
        }
    }

    /// Checks the address of the listener: other machines are served in plaintext only if that is wanted.
    pub(super) fn address(
        &self,
        text: &str,
        is_plaintext: bool,
        registration: Registration<'_>,
        check: &mut Check,
    ) -> Option<SocketAddr> {
        if !registration.is_wanted {
            check.wrong(self.address, text, "there is no registration without --registration-address");
        }
        let address = check.parse(self.address, Some(text), parse::address)?;
        let has_tls = registration.settings.is_some_and(|settings| settings.tls.is_some());
        if !address.ip().is_loopback() && !has_tls && !is_plaintext {
            let hint = format!(
                "other machines could register in plaintext: name --registration-cert-file and \
                 --registration-key-file, or say {}",
                self.plaintext
            );
            check.wrong(self.address, text, &hint);
        }
        Some(address)
    }

    /// Checks the namespace of the services; `None` without one.
    pub(super) fn namespace(&self, text: Option<&str>, check: &mut Check) -> Option<Arc<str>> {
        check.parse(self.namespace, text, |text| {
            let key = pilotfish_registration::service_key(text, "any", "");
            key.map(|key| key.namespace).map_err(|wrong| wrong.to_string())
        })
    }

    /// Checks the port of the services; `None` for that of the instance.
    pub(super) fn service_port(&self, text: Option<&str>, check: &mut Check) -> Option<NonZeroU16> {
        check.parse(self.service_port, text, |text| {
            text.parse::<NonZeroU16>().map_err(|_| "no port from 1 to 65535".to_owned())
        })
    }
}
