//! Plans of clients that leave.

use super::{Fixture, fixture, routes};
use pilotfish_admin::Bound;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::timeout;

#[tokio::test]
async fn plan_is_cancelled_when_its_client_disconnects() {
    let (plans, mut events) = unbounded_channel();
    let pages = routes(Fixture { plans: Some(plans), ..fixture() });
    let server = Bound::bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let address = server.address();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(server.run(pages, async {
        let _ = stopped.await;
    }));
    let body = r#"{"files": []}"#;
    let request = format!(
        "POST /api/v1/plan HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(request.as_bytes()).await.unwrap();
    assert_eq!(events.recv().await, Some(false), "the plan starts while its client waits");
    drop(client);
    let ended = timeout(Duration::from_secs(30), events.recv()).await.expect("the plan ends");
    assert_eq!(ended, Some(true), "it ends because its client has left");
    drop(stop);
    running.await.unwrap();
}
