use super::*;
use parking_lot::Mutex;
use pilotfish_ca::SelfSigned;
use pilotfish_registry::testing::Scene;
use serde_json::{Value, json};
use std::time::SystemTime;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

fn root() -> String {
    SelfSigned::create(SystemTime::now()).unwrap().certificate
}

fn bundle(roots: &[&str]) -> String {
    let base64 = |pem: &&str| pem.lines().filter(|line| !line.starts_with('-')).collect::<String>();
    let key = |pem: &&str| json!({"kty": "EC", "use": "x509-svid", "x5c": [base64(pem)]});
    json!({"keys": roots.iter().map(key).collect::<Vec<_>>()}).to_string()
}

fn world(authorities: &Value) -> Arc<World> {
    let mut scene = Scene::default();
    scene.set_mesh(&json!({"caCertificates": authorities}).to_string()).unwrap();
    scene.settle();
    scene.world()
}

fn url(address: &str) -> Value {
    json!({"spiffeBundleUrl": address})
}

/// Answers each request with the text; 404 while it is empty.
async fn endpoint(answer: Arc<Mutex<String>>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.read(&mut [0; 4096]).await.unwrap();
            let body = answer.lock().clone();
            let status = if body.is_empty() { "404 Not Found" } else { "200 OK" };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n");
            // The client may have read enough.
            let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
        }
    });
    format!("http://{address}/bundle")
}

#[test]
fn roots_of_the_mesh_follow_those_of_the_authority() {
    let [own, one, other, read] = [(); 4].map(|()| root());
    let (first, second, third) = ("https://a.test/", "https://b.test/", "https://c.test/");
    let of = |authorities: Value, bundles: &Bundles| {
        FurtherRoots::of(&world(&authorities), bundles).map(|further| further.joined(&own))
    };
    let succeeded = Bundle { roots: Some(read.as_str().into()), is_failing: false };
    let failed = Bundle { roots: None, is_failing: true };
    let revoked = Bundle { roots: Some("".into()), is_failing: false };
    let bundles = [(first, succeeded), (second, failed), (third, revoked)];
    let bundles: Bundles = bundles.map(|(address, bundle)| (address.to_owned(), bundle)).into();
    let (read_in, failing, without) = (url(first), url(second), url(third));
    let all = json!([{"pem": one}, {"pem": "odd"}, read_in, {"pem": other}, failing, without, {}]);
    assert_eq!(of(all, &bundles), Some((format!("{own}{one}{read}{other}"), vec![1])));
    assert_eq!(of(json!([{"pem": own}]), &bundles), Some((own.clone(), vec![])), "each root once");
    assert_eq!(of(json!([{"pem": one}, url("https://d.test/")]), &bundles), None, "not read yet");
    let large = format!("{one}{}", " ".repeat(LARGEST - one.len()));
    let full = json!([{"pem": large}, {"pem": other}]);
    assert_eq!(of(full, &bundles), Some((format!("{own}{one}"), vec![1])));
    let between = json!([{"pem": one}, {"pem": large}, {"pem": other}]);
    assert_eq!(of(between, &bundles), Some((format!("{own}{one}{other}"), vec![1])));
}

#[test]
fn number_of_addresses_is_limited() {
    let all: Vec<_> = (0..=MOST).map(|number| format!("https://{number:03}.test/")).collect();
    let world = world(&all.iter().map(|address| url(address)).collect());
    let bundles = all[..MOST].iter().map(|address| (address.clone(), Bundle::default())).collect();
    let further = FurtherRoots::of(&world, &bundles).unwrap();
    assert_eq!(further.joined(""), (String::new(), vec![MOST]));
    with_mesh(&world, |mesh| assert_eq!(addresses(mesh).len(), MOST));
}

#[tokio::test(start_paused = true)]
async fn bundle_that_cannot_be_read_any_more_stays_in_force_until_its_address_goes() {
    let metrics = Arc::new(Metrics::new("test").unwrap());
    let bundles = Arc::new(TrustBundles::new(metrics.clone()));
    let (one, other) = (root(), root());
    let answer = Arc::new(Mutex::new(bundle(&[&one])));
    let address = endpoint(answer.clone()).await;
    let mut scene = Scene::default();
    let set = |scene: &mut Scene, authorities: Value| {
        scene.set_mesh(&json!({"caCertificates": authorities}).to_string()).unwrap();
        scene.settle();
    };
    set(&mut scene, json!([url(&address), url("http://10.0.0.1/")]));
    let shared = Arc::new(Shared::default());
    let running = tokio::spawn(bundles.clone().run(shared.follow()));
    shared.publish(scene.world());
    let read = async |expected: &dyn Fn(&Bundles) -> bool| {
        let mut changed = bundles.follow();
        changed.wait_for(|bundles| expected(bundles)).await.unwrap();
    };
    let is = |address: String, roots: String, is_failing| {
        move |bundles: &Bundles| {
            let expected = Bundle { roots: Some(roots.as_str().into()), is_failing };
            bundles.get(&address) == Some(&expected)
        }
    };
    read(&is(address.clone(), one.clone(), false)).await;
    let refused = Bundle { roots: None, is_failing: true };
    read(&|bundles| bundles.get("http://10.0.0.1/") == Some(&refused)).await;
    answer.lock().clear();
    read(&is(address.clone(), one, true)).await;
    assert_eq!(metrics.ca.bundles_failing.get(), 2);
    *answer.lock() = bundle(&[&other]);
    read(&is(address.clone(), other, false)).await;
    *answer.lock() = bundle(&[]);
    read(&is(address, String::new(), false)).await;
    set(&mut scene, json!([]));
    shared.publish(scene.world());
    read(&|bundles| bundles.is_empty()).await;
    assert_eq!(metrics.ca.bundles_failing.get(), 0);
    running.abort();
}
