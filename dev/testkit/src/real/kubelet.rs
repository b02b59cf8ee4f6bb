//! The container of a Deployment's Pod, run as a kubelet would run it, in the network of the caller.

use super::{ApiServer, Program, Tool, load};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use tempfile::TempDir;
use tokio::process::Command;

const NODE: &str = "node";
/// Path of the image's entry point for the container.
const ENTRY: &str = "/var/run/entry";

/// A Pod whose only container is an Envoy. Ends on drop.
pub struct EnvoyPod {
    name: String,
    namespace: String,
    ip: String,
    labels: BTreeMap<String, String>,
    /// URL of the readiness probe.
    probe: String,
    program: Program,
    _volumes: TempDir,
}

impl EnvoyPod {
    /// Creates the Pod of a Deployment, and starts its container with the user, file systems, kernel
    /// parameters, environment and arguments that the template asks for. `None` where there is no Envoy and
    /// it is not required.
    ///
    /// # Panics
    /// When the API server refuses the Pod, or the template has a field that this cannot follow. When this
    /// process may not make mounts.
    pub async fn start(server: &ApiServer, deployment: &Value, ip: &str) -> Option<Self> {
        let envoy = Tool::Envoy.find()?;
        let template = &deployment["spec"]["template"];
        let namespace = text(&deployment["metadata"]["namespace"]);
        let name = format!("{}-1", text(&deployment["metadata"]["name"]));
        let mut pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": template["metadata"], "spec": template["spec"],
            "status": {
                "phase": "Running", "podIP": ip, "podIPs": [{"ip": ip}],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        });
        pod["metadata"]["name"] = json!(name);
        pod["metadata"]["namespace"] = json!(namespace);
        pod["spec"]["nodeName"] = json!(NODE);
        server.apply(&pod.to_string()).await;
        let volumes = tempfile::tempdir().expect("a temporary folder");
        let container = &pod["spec"]["containers"][0];
        let script = script(server, &pod, container, &envoy, volumes.path()).await;
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "--", "sh", "-ec", &script, "sh"]);
        command.args(words(&pod, container));
        let program = Program::start(&mut command, server.folder().join(format!("{name}.log")));
        let probe = &container["readinessProbe"]["httpGet"];
        let probe = format!("http://{ip}:{}{}", probe["port"], text(&probe["path"]));
        let labels = serde_json::from_value(pod["metadata"]["labels"].clone()).expect("labels are strings");
        let (name, namespace, ip) = (name, namespace.to_owned(), ip.to_owned());
        Some(Self { name, namespace, ip, labels, probe, program, _volumes: volumes })
    }

    /// Runs the readiness probe.
    ///
    /// # Errors
    /// The reason why it is not ready, with the output of the container.
    pub async fn ready(&self) -> Result<(), String> {
        let answer = load::fetch(&self.probe).await;
        answer.map(drop).map_err(|error| format!("{error}\n{}", self.printed()))
    }

    /// Writes the EndpointSlice of a Service that selects it.
    ///
    /// # Panics
    /// When the Service does not select it, or a port has no number as its target.
    pub async fn serve(&self, server: &ApiServer, service: &Value) {
        let selector = service["spec"]["selector"].as_object().expect("a Service with a selector");
        for (label, value) in selector {
            assert_eq!(self.labels.get(label).map(String::as_str), value.as_str(), "{label} is selected");
        }
        let ports = service["spec"]["ports"].as_array().expect("a Service with ports").iter();
        let ports = ports.map(|port| {
            assert!(port["targetPort"].is_u64(), "{port}");
            json!({"name": port["name"], "port": port["targetPort"], "protocol": port["protocol"],
                   "appProtocol": port["appProtocol"]})
        });
        let name = text(&service["metadata"]["name"]);
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {
                "name": format!("{name}-1"), "namespace": self.namespace,
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "ports": ports.collect::<Vec<_>>(),
            "endpoints": [{
                "addresses": [self.ip], "conditions": {"ready": true}, "nodeName": NODE,
                "targetRef": {"kind": "Pod", "name": self.name, "namespace": self.namespace},
            }],
        });
        server.apply(&slice.to_string()).await;
    }

    /// Output of the container so far.
    #[must_use]
    pub fn printed(&self) -> String {
        self.program.printed()
    }
}

/// Shell script that makes the container's mounts and kernel parameters, and becomes its arguments.
async fn script(server: &ApiServer, pod: &Value, container: &Value, envoy: &Path, folder: &Path) -> String {
    // /var/run may be a link to /run.
    let mut script = "mount -t tmpfs -o mode=755 tmpfs /var/run/\n".to_owned();
    let _ = writeln!(script, "touch {ENTRY}; mount --bind '{}' {ENTRY}", envoy.display());
    let spec = &pod["spec"];
    for mount in container["volumeMounts"].as_array().into_iter().flatten() {
        let volumes = spec["volumes"].as_array().into_iter().flatten();
        let volume = volumes.into_iter().find(|volume| volume["name"] == mount["name"]);
        let source = folder.join(text(&mount["name"]));
        fill(server, pod, volume.expect("a mount names a volume"), &source).await;
        let target = text(&mount["mountPath"]);
        assert!(target.starts_with("/var/run/"), "the root is the machine's: {target}");
        let _ = writeln!(script, "mkdir -p '{target}'; mount --bind '{}' '{target}'", source.display());
        let _ = writeln!(script, "mount -o remount,bind,ro '{target}'");
    }
    for sysctl in spec["securityContext"]["sysctls"].as_array().into_iter().flatten() {
        let file = text(&sysctl["name"]).replace('.', "/");
        let _ = writeln!(script, "echo '{}' >/proc/sys/{file}", text(&sysctl["value"]));
    }
    if container["securityContext"]["readOnlyRootFilesystem"] == true {
        script.push_str("mount -o remount,bind,ro /\n");
    }
    script.push_str("cd /\nexec \"$@\"\n");
    script
}

/// Makes the files of a projected volume: a kubelet gives tokens to the user of the container alone.
async fn fill(server: &ApiServer, pod: &Value, volume: &Value, folder: &Path) {
    std::fs::create_dir(folder).expect("the folder can be written");
    std::fs::set_permissions(folder, PermissionsExt::from_mode(0o755)).expect("it was made here");
    let user = id(&pod["spec"]["securityContext"]["runAsUser"]);
    for source in volume["projected"]["sources"].as_array().expect("a projected volume") {
        let wanted = &source["serviceAccountToken"];
        let account = text(&pod["spec"]["serviceAccountName"]);
        let namespace = text(&pod["metadata"]["namespace"]);
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {
            "audiences": [wanted["audience"]], "expirationSeconds": wanted["expirationSeconds"],
        }});
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(body.to_string().into_bytes()).expect("it is a request");
        let answer: Value = server.client().request(request).await.expect("the account has tokens");
        let file = folder.join(text(&wanted["path"]));
        std::fs::write(&file, text(&answer["status"]["token"])).expect("the folder can be written");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).expect("it was made here");
        chown(&file, Some(user), None).expect("only root may run containers as any user");
    }
}

/// Command that becomes the container's user without capabilities, and starts the entry point.
fn words(pod: &Value, container: &Value) -> Vec<String> {
    let (of_pod, own) = (&pod["spec"]["securityContext"], &container["securityContext"]);
    assert_eq!(own["capabilities"], json!({"drop": ["ALL"]}));
    assert_eq!(own["allowPrivilegeEscalation"], false);
    let environment = environment(pod, container);
    let mut words = vec![
        "setpriv".to_owned(),
        format!("--reuid={}", id(&of_pod["runAsUser"])),
        format!("--regid={}", id(&of_pod["runAsGroup"])),
    ];
    let rights = ["--clear-groups", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"];
    words.extend(rights.into_iter().chain(["env", "-i"]).map(str::to_owned));
    words.extend(environment.iter().map(|(name, value)| format!("{name}={value}")));
    words.push(ENTRY.to_owned());
    assert!(container["command"].is_null(), "the image's entry point runs");
    let arguments = container["args"].as_array().into_iter().flatten();
    words.extend(arguments.map(|argument| expand(text(argument), &environment)));
    words
}

fn environment(pod: &Value, container: &Value) -> BTreeMap<String, String> {
    let value = |variable: &Value| match variable["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
        None => text(&variable["value"]).to_owned(),
        Some("metadata.name") => text(&pod["metadata"]["name"]).to_owned(),
        Some("metadata.namespace") => text(&pod["metadata"]["namespace"]).to_owned(),
        Some("status.podIP" | "status.podIPs") => text(&pod["status"]["podIP"]).to_owned(),
        Some("spec.nodeName") => text(&pod["spec"]["nodeName"]).to_owned(),
        Some("spec.serviceAccountName") => text(&pod["spec"]["serviceAccountName"]).to_owned(),
        Some(other) => panic!("unknown field {other}"),
    };
    let variables = container["env"].as_array().into_iter().flatten();
    variables.map(|variable| (text(&variable["name"]).to_owned(), value(variable))).collect()
}

/// Replaces `$(NAME)` by the variable of that name, and `$$` by `$`. Unknown names stay as written.
fn expand(text: &str, environment: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let name = after.strip_prefix('(').and_then(|after| after.split_once(')'));
        rest = match name {
            _ if after.starts_with('$') => {
                out.push('$');
                &after[1..]
            }
            Some((name, after)) if environment.contains_key(name) => {
                out.push_str(&environment[name]);
                after
            }
            _ => {
                out.push('$');
                after
            }
        };
    }
    out + rest
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is not a string"))
}

fn id(value: &Value) -> u32 {
    value.as_u64().and_then(|id| id.try_into().ok()).unwrap_or_else(|| panic!("{value} is no user"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_in_kubernetes() {
        let environment = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        for (text, expected) in [
            ("a$(A)b$(A)", "a1b1"),
            ("$(B) $A ${A} $", "$(B) $A ${A} $"),
            ("$$(A) $$$(A)", "$(A) $1"),
            ("$(", "$("),
        ] {
            assert_eq!(expand(text, &environment), expected, "{text}");
        }
    }
}
