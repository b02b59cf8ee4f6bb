//! Kubernetes' own kinds: checks of the API server, for the fields that are read here.

use crate::IntOrString;
use crate::kubernetes::{
    AddressType, EndpointSlice, Namespace, Pod, Secret, Service, ServiceImport, ServicePort, ServiceType,
};
use crate::path::Path;
use crate::problem::Checker;
use crate::read::metadata::{is_label_name, is_object_name};
use crate::validate::fields::names::{self, each, quoted, unique};
use crate::validate::fields::values::is_pem;
use crate::validate::limits;
use pilotfish_model::ObjectMeta;
use std::net::IpAddr;

pub(in crate::validate) fn service(
    service: &Service,
    at: &Path<'_>,
    meta: &ObjectMeta,
    checker: &mut Checker,
) {
    if !is_label_name(&meta.key.name) {
        let message = format!("{} is not the name of a Service: {LABEL_RULE}", quoted(&meta.key.name));
        checker.error(&at.field("metadata").field("name"), message);
    }
    let spec = &service.spec;
    let at_spec = at.field("spec");
    if spec.r#type == ServiceType::ExternalName {
        external_name(&spec.external_name, &at_spec.field("externalName"), checker);
    } else if spec.ports.is_empty() && !spec.is_headless() {
        checker.error(&at_spec.field("ports"), "must be set");
    }
    each(&spec.cluster_ips, &at_spec.field("clusterIPs"), checker, |address, at, checker| {
        if address != "None" && !address.is_empty() {
            names::ip(address, at, checker);
        }
    });
    if spec.cluster_ips.first().is_some_and(|first| *first != spec.cluster_ip) {
        checker.error(&at_spec.field("clusterIPs"), "must begin with clusterIP");
    }
    each(&spec.external_ips, &at_spec.field("externalIPs"), checker, |address, at, checker| {
        names::ip(address, at, checker);
    });
    service_ports(&spec.ports, &at_spec.field("ports"), checker);
    names::labels(&*spec.selector, &at_spec.field("selector"), checker);
    let status = at.field("status");
    let balancer = status.field("loadBalancer");
    each(
        &service.status.load_balancer.ingress,
        &balancer.field("ingress"),
        checker,
        |ingress, at, checker| {
            if !ingress.ip.is_empty() {
                names::ip(&ingress.ip, &at.field("ip"), checker);
            }
        },
    );
}

/// Rule for DNS labels in lower case, for messages.
const LABEL_RULE: &str = "1 to 63 of a-z, 0-9 and '-', not '-' at the ends";

fn external_name(name: &str, at: &Path<'_>, checker: &mut Checker) {
    let name_part = name.strip_suffix('.').unwrap_or(name);
    if name.is_empty() {
        checker.error(at, "must be set for type ExternalName");
    } else if !is_object_name(&name_part.to_ascii_lowercase()) {
        checker.error(at, format!("{} is not a host name", quoted(name)));
    }
}

fn service_ports(ports: &[ServicePort], at: &Path<'_>, checker: &mut Checker) {
    each(ports, at, checker, |port, at, checker| {
        names::port(port.port, &at.field("port"), checker);
        port_name(&port.name, ports.len() > 1, &at.field("name"), checker);
        // An absent target port is the port itself, which is checked above.
        if port.target_port != IntOrString::Int(port.port.into()) {
            target_port(&port.target_port, &at.field("targetPort"), checker);
        }
    });
    unique(ports, at, "name", checker, |port| Some(&port.name).filter(|name| !name.is_empty()));
    unique(ports, at, "port", checker, |port| Some((port.port, port.protocol)));
}

fn port_name(name: &str, required: bool, at: &Path<'_>, checker: &mut Checker) {
    if name.is_empty() {
        if required {
            checker.error(at, "must be set, there are several ports");
        }
    } else if !is_label_name(name) {
        checker.error(at, format!("{} is not the name of a port: {LABEL_RULE}", quoted(name)));
    }
}

/// Checks a port of pods: a number, or the name of a container port.
fn target_port(port: &IntOrString, at: &Path<'_>, checker: &mut Checker) {
    match port {
        IntOrString::Int(number) => names::port(*number, at, checker),
        IntOrString::String(name) => container_port_name(name, at, checker),
    }
}

fn container_port_name(name: &str, at: &Path<'_>, checker: &mut Checker) {
    let has_letter = name.bytes().any(|c| c.is_ascii_lowercase());
    if name.len() > 15 || !is_label_name(name) || name.contains("--") || !has_letter {
        let rule = "up to 15 of a-z, 0-9 and '-', with a letter";
        checker.error(at, format!("{} is not the name of a container's port: {rule}", quoted(name)));
    }
}

pub(in crate::validate) fn endpoint_slice(
    slice: &EndpointSlice,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    if !limits::endpoint_slice(slice, at, checker) {
        return;
    }
    each(&slice.endpoints, &at.field("endpoints"), checker, |endpoint, at, checker| {
        let at = at.field("addresses");
        if endpoint.addresses.is_empty() {
            checker.error(&at, "must be set");
        }
        each(&endpoint.addresses, &at, checker, |address, at, checker| {
            let family = match slice.address_type {
                AddressType::IPv4 => address.parse().map(|address: IpAddr| address.is_ipv4()),
                AddressType::IPv6 => address.parse().map(|address: IpAddr| address.is_ipv6()),
                AddressType::Fqdn => return names::fqdn(address, at, checker),
            };
            match family {
                Ok(true) => {}
                Ok(false) => checker.warning(at, format!("is not of addressType {:?}", slice.address_type)),
                Err(_) => names::ip(address, at, checker),
            }
        });
    });
    let ports = at.field("ports");
    each(&slice.ports, &ports, checker, |port, at, checker| {
        port_name(&port.name, slice.ports.len() > 1, &at.field("name"), checker);
        match port.port {
            Some(number) => names::port(number, &at.field("port"), checker),
            None => {
                checker.warning(&at.field("port"), "is not set: the endpoints are not used for this port")
            }
        }
    });
    unique(&slice.ports, &ports, "name", checker, |port| Some(&port.name));
}

pub(in crate::validate) fn pod(pod: &Pod, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    let spec = at.field("spec");
    for (field, containers) in
        [("containers", &pod.spec.containers), ("initContainers", &pod.spec.init_containers)]
    {
        each(containers, &spec.field(field), checker, |container, at, checker| {
            each(&container.ports, &at.field("ports"), checker, |port, at, checker| {
                names::port(port.container_port, &at.field("containerPort"), checker);
                if !port.name.is_empty() {
                    container_port_name(&port.name, &at.field("name"), checker);
                }
            });
        });
    }
    let status = at.field("status");
    if !pod.status.host_ip.is_empty() {
        names::ip(&pod.status.host_ip, &status.field("hostIP"), checker);
    }
    // They begin with `podIP`.
    each(&pod.status.pod_ips, &status.field("podIPs"), checker, |address, at, checker| {
        names::ip(&address.ip, &at.field("ip"), checker);
    });
}

pub(in crate::validate) fn service_import(
    import: &ServiceImport,
    at: &Path<'_>,
    _: &ObjectMeta,
    checker: &mut Checker,
) {
    let spec = at.field("spec");
    each(&import.spec.ips, &spec.field("ips"), checker, |address, at, checker| {
        names::ip(address, at, checker);
    });
    let ports = spec.field("ports");
    each(&import.spec.ports, &ports, checker, |port, at, checker| {
        names::port(port.port, &at.field("port"), checker);
        port_name(&port.name, import.spec.ports.len() > 1, &at.field("name"), checker);
    });
    unique(&import.spec.ports, &ports, "port", checker, |port| Some((port.port, port.protocol)));
}

pub(in crate::validate) fn namespace(_: &Namespace, at: &Path<'_>, meta: &ObjectMeta, checker: &mut Checker) {
    if !is_label_name(&meta.key.name) {
        let message = format!("{} is not the name of a Namespace: {LABEL_RULE}", quoted(&meta.key.name));
        checker.error(&at.field("metadata").field("name"), message);
    }
}

pub(in crate::validate) fn secret(secret: &Secret, at: &Path<'_>, _: &ObjectMeta, checker: &mut Checker) {
    if secret.r#type == "kubernetes.io/tls" {
        for key in ["tls.crt", "tls.key"].into_iter().filter(|key| secret.value(key).is_none()) {
            checker.error(&at.field("data").key(key), "must be set for type kubernetes.io/tls");
        }
        for key in ["tls.crt", "tls.key"] {
            // The API server accepts empty values, for a certificate that is not issued yet.
            let value = secret.value(key).unwrap_or_default();
            if !value.is_empty() && !is_pem(value) {
                checker.error(&at.field("data").key(key), "is not PEM, -----BEGIN ...----- and base64");
            }
        }
    }
}
