use super::*;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// A server that answers each byte with the same byte, and a proxy before it.
struct Scene {
    proxy: FaultProxy,
    server: JoinHandle<()>,
}

impl Scene {
    async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let target = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((mut client, _)) = listener.accept().await {
                connections.spawn(async move {
                    let (mut from, mut to) = client.split();
                    tokio::io::copy(&mut from, &mut to).await
                });
            }
        });
        Self { proxy: FaultProxy::start(target).await, server }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.proxy.address()).await.unwrap()
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Sends a text and reads as many bytes; what came until the connection ended.
async fn ask(client: &mut TcpStream, text: &[u8]) -> Vec<u8> {
    let mut answer = vec![0; text.len()];
    if client.write_all(text).await.is_err() {
        return Vec::new();
    }
    let mut have = 0;
    while have < answer.len() {
        match timeout(LIMIT, client.read(&mut answer[have..])).await.expect("an answer or an end in time") {
            Ok(0) | Err(_) => break,
            Ok(read) => have += read,
        }
    }
    answer.truncate(have);
    answer
}

/// Nothing comes although the connection stays.
async fn is_silent(client: &mut TcpStream) -> bool {
    timeout(Duration::from_millis(50), client.read_u8()).await.is_err()
}

#[tokio::test]
async fn it_passes_and_counts() {
    let scene = Scene::start().await;
    let mut one = scene.connect().await;
    let mut two = scene.connect().await;
    assert_eq!(ask(&mut one, b"hello").await, b"hello");
    assert_eq!(ask(&mut two, b"world").await, b"world");
    assert_eq!((scene.proxy.connections(), scene.proxy.open()), (2, 2));
    assert_eq!(scene.proxy.bytes(), (10, 10));
    one.shutdown().await.unwrap();
    assert_eq!(one.read(&mut [0]).await.unwrap(), 0, "the end of one side reaches the other");
    drop(one);
    crate::real::eventually("it is closed", || async {
        let open = scene.proxy.open();
        if open == 1 { Ok(()) } else { Err(open) }
    })
    .await;
}

#[tokio::test]
async fn it_refuses_and_listens_again_on_the_same_port() {
    let scene = Scene::start().await;
    let mut client = scene.connect().await;
    assert_eq!(ask(&mut client, b"a").await, b"a");
    scene.proxy.set(Fault::Refuse).await;
    assert_eq!(ask(&mut client, b"a").await, b"", "open connections are cut");
    let refused = TcpStream::connect(scene.proxy.address()).await.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    scene.proxy.set(Fault::None).await;
    assert_eq!(ask(&mut scene.connect().await, b"b").await, b"b");
}

#[tokio::test]
async fn it_closes_what_it_accepts() {
    let scene = Scene::start().await;
    let mut client = scene.connect().await;
    assert_eq!(ask(&mut client, b"a").await, b"a");
    scene.proxy.set(Fault::Close).await;
    assert_eq!(ask(&mut client, b"a").await, b"");
    assert_eq!(ask(&mut scene.connect().await, b"a").await, b"");
    assert_eq!(scene.proxy.connections(), 2);
    scene.proxy.set(Fault::None).await;
    assert_eq!(ask(&mut scene.connect().await, b"a").await, b"a");
    scene.proxy.cut();
    scene.proxy.cut();
    assert_eq!(ask(&mut scene.connect().await, b"a").await, b"a", "a cut is for what was open");
}

#[tokio::test]
async fn it_hangs_with_connections_open_and_forwards_what_it_held_back() {
    let scene = Scene::start().await;
    let mut old = scene.connect().await;
    assert_eq!(ask(&mut old, b"a").await, b"a");
    scene.proxy.set(Fault::Hang).await;
    let mut new = scene.connect().await;
    old.write_all(b"b").await.unwrap();
    new.write_all(b"c").await.unwrap();
    assert!(is_silent(&mut old).await && is_silent(&mut new).await);
    scene.proxy.set(Fault::None).await;
    assert_eq!(old.read_u8().await.unwrap(), b'b');
    assert_eq!(new.read_u8().await.unwrap(), b'c');
}

#[tokio::test]
async fn a_delay_is_one_for_a_long_answer() {
    let scene = Scene::start().await;
    let delay = Duration::from_millis(300);
    scene.proxy.set(Fault::Delay(delay)).await;
    let (mut from, mut to) = scene.connect().await.into_split();
    let text = vec![7; 1 << 20];
    let began = Instant::now();
    let sent = tokio::spawn(async move {
        to.write_all(&text).await.unwrap();
        to
    });
    let mut answer = vec![0; 1 << 20];
    from.read_exact(&mut answer).await.unwrap();
    let took = began.elapsed();
    assert!(took >= delay && took < 20 * delay, "64 pieces took {took:?}");
    drop(sent.await.unwrap());
}

#[tokio::test]
async fn it_truncates_each_connection() {
    let scene = Scene::start().await;
    let mut old = scene.connect().await;
    assert_eq!(ask(&mut old, b"0123456789").await, b"0123456789");
    scene.proxy.set(Fault::Truncate(4)).await;
    assert_eq!(ask(&mut old, b"0123456789").await, b"0123", "counted from when the fault began");
    assert_eq!(ask(&mut scene.connect().await, b"abcdef").await, b"abcd");
    scene.proxy.set(Fault::Truncate(0)).await;
    assert_eq!(ask(&mut scene.connect().await, b"abcdef").await, b"");
}

#[tokio::test]
async fn it_garbles_answers() {
    let scene = Scene::start().await;
    let mut client = scene.connect().await;
    scene.proxy.set(Fault::Garble(3)).await;
    assert_eq!(ask(&mut client, &[1, 2, 3, 4]).await, [1, 2, !3, 4]);
    assert_eq!(ask(&mut client, &[5, 6, 7]).await, [5, !6, 7], "it counts on");
    scene.proxy.set(Fault::Replace(b'{', b'[')).await;
    assert_eq!(ask(&mut client, b"{a{").await, b"[a[");
    scene.proxy.set(Fault::None).await;
    assert_eq!(ask(&mut client, b"{a{").await, b"{a{");
}

#[tokio::test]
async fn it_can_lead_elsewhere() {
    let (one, two) = (Scene::start().await, Scene::start().await);
    one.proxy.lead_to(SocketAddr::from((Ipv4Addr::LOCALHOST, two.proxy.port())));
    assert_eq!(ask(&mut one.connect().await, b"a").await, b"a");
    assert_eq!(two.proxy.connections(), 1);
}
