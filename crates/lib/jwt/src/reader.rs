//! Reading of issuers' keys: files, addresses, and OpenID Connect discovery.

use crate::issuers::{Issuer, Issuers};
use crate::keys::KeySet;
use crate::rules::{JwtRules, Keys};
use pilotfish_connect::{DocumentClient, Target, document_address, document_base};
use pilotfish_runtime::{FileReader, read_regular_text};
use serde::Deserialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// Interval at which keys of addresses are read.
const INTERVAL: Duration = Duration::from_secs(300);
/// Interval at which keys in files are read.
const FILE_INTERVAL: Duration = Duration::from_secs(5);
/// Shortest time between two reads: after a failure, and for tokens with unknown keys.
const PAUSE: Duration = Duration::from_secs(10);
/// Maximum length of an error that holds an address of a discovery document, in characters.
const LONGEST_ERROR: usize = 300;
/// Path of the document of an issuer (OpenID Connect Discovery 1.0, section 4).
const DISCOVERY: &str = "/.well-known/openid-configuration";

/// Source of the keys of an issuer.
#[derive(Clone)]
pub struct KeySource {
    issuer: String,
    place: Place,
    files: FileReader,
}

#[derive(Clone)]
enum Place {
    File(PathBuf),
    Uri(DocumentClient, Target),
    Discovery(DocumentClient, Target),
}

#[derive(Deserialize)]
struct Document {
    issuer: String,
    jwks_uri: String,
}

/// Reads the keys of all issuers again and again. Until a read succeeds, the keys before stay in force.
pub struct KeyReader {
    issuers: Arc<Issuers>,
    sources: Vec<Source>,
}

/// An issuer with the source of its keys.
type Source = (Arc<Issuer>, KeySource);

impl KeySource {
    /// Returns the source of an issuer's keys; `None` if they are in its rule.
    ///
    /// # Errors
    /// If an address cannot be used.
    fn of(issuer: &Issuer) -> Result<Option<Self>, String> {
        let rule = &issuer.rule;
        let client = |target: &Target| DocumentClient::new(target, rule.ca_file.clone());
        let place = match &rule.keys {
            Keys::Inline(_) => return Ok(None),
            Keys::File(path) => Place::File(path.clone()),
            Keys::Uri(uri) => {
                let keys = document_address(uri).map_err(|error| format!("jwksUri: {error}"))?;
                Place::Uri(client(&keys), keys)
            }
            Keys::Discovery => {
                let hint = |error| format!("issuer: {error}; without jwks, its keys are discovered there");
                let issuer = document_base(&rule.issuer).map_err(hint)?;
                Place::Discovery(client(&issuer), issuer)
            }
        };
        Ok(Some(Self { issuer: rule.issuer.clone(), place, files: FileReader::default() }))
    }

    /// Reads the keys.
    ///
    /// # Errors
    /// If they cannot be read or used, in one line.
    async fn read(&self) -> Result<KeySet, String> {
        let keys = match &self.place {
            Place::File(path) => {
                let path = path.clone();
                let limit = u64::try_from(DocumentClient::LARGEST).unwrap_or(u64::MAX);
                let named = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
                let own = path.clone();
                let text = self.files.run(move || read_regular_text(&own, limit)).await;
                text.map_err(|error| named(&error))?.map_err(|error| named(&error))?.into_bytes()
            }
            Place::Uri(client, keys) => client.get(keys, "").await?,
            Place::Discovery(client, issuer) => {
                let text = client.get(issuer, DISCOVERY).await?;
                let document: Document = serde_json::from_slice(&text)
                    .map_err(|error| format!("{DISCOVERY} is no discovery document: {error}"))?;
                if document.issuer != self.issuer {
                    return Err(format!("{DISCOVERY} is of another issuer"));
                }
                let cut = |error: String| error.chars().take(LONGEST_ERROR).collect::<String>();
                let keys = document_address(&document.jwks_uri);
                let keys = keys.map_err(|error| format!("jwks_uri: {}", cut(error)))?;
                if keys.scheme != issuer.scheme {
                    return Err("jwks_uri has another scheme than the issuer".to_owned());
                }
                client.get(&keys, "").await?
            }
        };
        KeySet::parse(&keys)
    }

    fn interval(&self) -> Duration {
        match self.place {
            Place::File(_) => FILE_INTERVAL,
            Place::Uri(..) | Place::Discovery(..) => INTERVAL,
        }
    }
}

impl KeyReader {
    /// Returns the reader of all issuers' keys.
    ///
    /// # Errors
    /// If an address cannot be used, with its issuer.
    pub fn new(issuers: Arc<Issuers>) -> Result<Self, String> {
        let sources = sources(&issuers.all())?;
        Ok(Self { issuers, sources })
    }

    /// Reads until the future is dropped, and starts again when the rules are replaced. One issuer delays no
    /// other.
    pub async fn run(self) {
        let Self { issuers, mut sources } = self;
        let mut replacements = issuers.replacements();
        loop {
            let mut tasks = JoinSet::new();
            for (issuer, source) in sources.drain(..) {
                tasks.spawn(follow(issuer, source));
            }
            // The sender lives as long as the issuers.
            let _ = replacements.changed().await;
            match self::sources(&issuers.all()) {
                Ok(new) => sources = new,
                Err(reason) => tracing::error!(reason, "keys of issuers of tokens cannot be read"),
            }
        }
    }
}

impl Issuers {
    /// Replaces the rules. Keys of an issuer from the same source stay in force until they are read again.
    ///
    /// # Errors
    /// If an address cannot be used, with its issuer. The rules before stay in force.
    pub fn replace(&self, rules: JwtRules) -> Result<(), String> {
        let new = self.with_rules(rules);
        sources(&new)?;
        self.put_in_force(new);
        Ok(())
    }
}

/// Returns the issuers whose keys are read.
///
/// # Errors
/// If an address cannot be used, with its issuer.
fn sources(issuers: &[Arc<Issuer>]) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for (index, issuer) in issuers.iter().enumerate() {
        let source = KeySource::of(issuer).map_err(|error| format!("jwtRules[{index}].{error}"))?;
        sources.extend(source.map(|source| (issuer.clone(), source)));
    }
    Ok(sources)
}

/// Reads the keys of one issuer at an interval, and when a token names an unknown key.
async fn follow(issuer: Arc<Issuer>, source: KeySource) {
    let mut failing = false;
    loop {
        match source.read().await {
            Ok(keys) => {
                issuer.replace(keys);
                if failing {
                    tracing::info!(issuer = source.issuer, "the keys of an issuer of tokens are read again");
                }
                failing = false;
            }
            Err(reason) if !failing => {
                tracing::error!(
                    issuer = source.issuer,
                    reason,
                    "cannot read the keys of an issuer of tokens; those before stay in force"
                );
                failing = true;
            }
            Err(_) => {}
        }
        sleep(PAUSE.min(source.interval())).await;
        if !failing {
            // Elapsed or not, the keys are read.
            let _ = timeout(source.interval(), issuer.wanted.notified()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verify::Refused;
    use std::time::SystemTime;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    const KEYS: &str = r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "a",
        "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn reader(rule: &str) -> Result<KeyReader, String> {
        let rules = JwtRules::parse(&format!("jwtRules: [{{audiences: [a], {rule}}}]")).unwrap();
        KeyReader::new(Arc::new(Issuers::new(rules)))
    }

    /// Answers each path with a text, or with 404.
    async fn serve(answers: impl Fn(&str) -> Option<String> + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("http://{address}");
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = vec![0; 4096];
                let size = stream.read(&mut request).await.unwrap();
                let request = String::from_utf8_lossy(&request[..size]).into_owned();
                let body = answers(request.split(' ').nth(1).unwrap_or_default());
                let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
                let body = body.unwrap_or_default();
                let head =
                    format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}", body.len());
                // The client may have read enough.
                let _ = stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await;
            }
        });
        url
    }

    async fn read(rule: &str) -> Result<KeySet, String> {
        reader(rule).unwrap().sources[0].1.read().await
    }

    #[tokio::test]
    async fn keys_are_read_from_files_addresses_and_by_discovery() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.json");
        std::fs::write(&file, KEYS).unwrap();
        assert!(read(&format!("issuer: a, jwksFile: {}", file.display())).await.unwrap().has("a"));
        let keys = serve(|path| ["/keys", "/set/"].contains(&path).then(|| KEYS.to_owned())).await;
        assert!(read(&format!("issuer: a, jwksUri: '{keys}/keys'")).await.unwrap().has("a"));
        assert!(read(&format!("issuer: a, jwksUri: '{keys}/set/'")).await.unwrap().has("a"));
        let error = read(&format!("issuer: a, jwksUri: '{keys}/none'")).await.unwrap_err();
        assert!(error.contains("404"), "{error}");
        let error = read(&format!("issuer: '{keys}'")).await.unwrap_err();
        assert!(error.contains("404"), "{error}");

        let named = Arc::new(parking_lot::Mutex::new(String::new()));
        let own = named.clone();
        let issuer = serve(move |path| {
            let issuer = own.lock().clone();
            let document = format!(r#"{{"issuer": "{issuer}", "jwks_uri": "{keys}/set/"}}"#);
            (path == "/realm/.well-known/openid-configuration").then_some(document)
        })
        .await;
        let rule = format!("issuer: '{issuer}/realm'");
        let error = read(&rule).await.unwrap_err();
        assert!(error.contains("another issuer"), "{error}");
        *named.lock() = format!("{issuer}/realm");
        assert!(read(&rule).await.unwrap().has("a"));
    }

    #[tokio::test]
    async fn what_is_too_large_or_no_key_set_is_refused() {
        let large = serve(|_| Some("x".repeat(DocumentClient::LARGEST + 1))).await;
        let error = read(&format!("issuer: a, jwksUri: '{large}'")).await.unwrap_err();
        assert!(error.contains("more than"), "{error}");
        let other = serve(|_| Some("<html>".to_owned())).await;
        let error = read(&format!("issuer: a, jwksUri: '{other}'")).await.unwrap_err();
        assert!(error.contains("no JWK set"), "{error}");
    }

    #[test]
    fn addresses_without_tls_are_of_this_machine() {
        for (rule, part) in [
            ("issuer: 'http://10.0.0.1'", "jwtRules[0].issuer: \"http://10.0.0.1\" has no TLS"),
            ("issuer: a, jwksUri: 'http://keys.test/'", "jwtRules[0].jwksUri: "),
            ("issuer: 'ftp://a'", "the scheme \"ftp\" is not one of"),
        ] {
            let error = reader(rule).err().unwrap();
            assert!(error.contains(part), "{error}");
        }
        assert!(reader("issuer: 'https://issuer.test/realm'").is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn keys_stay_in_force_while_the_issuer_cannot_be_reached() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("keys.json");
        let rules = format!("jwtRules: [{{issuer: a, audiences: [a], jwksFile: {}}}]", file.display());
        let issuers = Arc::new(Issuers::new(JwtRules::parse(&rules).unwrap()));
        // {"alg":"EdDSA","kid":"a"}, and {"iss":"a","exp":1}: the signature is wrong if there are keys.
        let token = "eyJhbGciOiJFZERTQSIsImtpZCI6ImEifQ.eyJpc3MiOiJhIiwiZXhwIjoxfQ.AAAA";
        let verified = || issuers.verify(token, SystemTime::now()).unwrap_err();
        let keys_are_read = async || {
            let reading = async {
                while verified() == Refused::NoKeys {
                    sleep(Duration::from_millis(100)).await;
                }
            };
            timeout(Duration::from_secs(30), reading).await.unwrap();
        };
        assert_eq!(verified(), Refused::NoKeys);
        std::fs::write(&file, KEYS).unwrap();
        let running = tokio::spawn(KeyReader::new(issuers.clone()).unwrap().run());
        keys_are_read().await;
        assert_eq!(verified(), Refused::Signature);
        std::fs::remove_file(&file).unwrap();
        tokio::time::sleep(10 * FILE_INTERVAL).await;
        assert_eq!(verified(), Refused::Signature);
        // The keys stay when the rules change, but for those of another source.
        let replace = |text: &str| issuers.replace(JwtRules::parse(text).unwrap());
        let wider = rules.replace("audiences: [a]", "audiences: [a, b]");
        replace(&wider).unwrap();
        assert_eq!(verified(), Refused::Signature);
        let error = replace(&wider.replace("jwksFile: ", "jwksUri: http:/")).unwrap_err();
        assert!(error.starts_with("jwtRules[0].jwksUri: "), "{error}");
        assert_eq!(verified(), Refused::Signature);
        let other = folder.path().join("other.json");
        replace(&rules.replace("keys.json", "other.json")).unwrap();
        assert_eq!(verified(), Refused::NoKeys);
        std::fs::write(&other, KEYS).unwrap();
        keys_are_read().await;
        replace("jwtRules: []").unwrap();
        assert_eq!(verified(), Refused::Issuer("a".to_owned()));
        running.abort();
    }
}
