package pilotfish.dubbo;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.RetryForever;
import org.apache.curator.x.discovery.ServiceDiscovery;
import org.apache.curator.x.discovery.ServiceDiscoveryBuilder;
import org.apache.curator.x.discovery.ServiceInstance;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.WatchedEvent;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;

/**
 * Writes nodes: {@code Nodes HOST:PORT [USER:PASSWORD]}. Each line of its input is a command, answered by {@code ok} or {@code error: REASON}:
 *
 * <pre>
 * put PATH [DATA]           makes or changes a node, with those above it
 * ephemeral PATH [DATA]     makes a node that goes with the session
 * delete PATH               removes a node with all below it
 * private PATH              only who has the secret may read it from now on
 * public PATH               everyone may
 * bulk COUNT                /dubbo/bulk.SN with two providers each
 * curator NAME ID ADDRESS PORT STATUS   registers an instance with Curator, as Spring Cloud does
 * leave NAME ID             unregisters it
 * follow PATH               prints what a node holds now and after each change, instead of an answer
 * </pre>
 */
public final class Nodes {
    /** Milliseconds: a JVM on a loaded machine may be silent for seconds. */
    private static final int SESSION = 10_000;

    private final ZooKeeper zooKeeper;
    private final String server;
    private final String secret;
    private CuratorFramework curator;
    private ServiceDiscovery<Payload> discovery;

    private Nodes(ZooKeeper zooKeeper, String server, String secret) {
        this.zooKeeper = zooKeeper;
        this.server = server;
        this.secret = secret;
    }

    /** What Spring Cloud writes into an instance. */
    public record Payload(String id, String name, Map<String, String> metadata) {}

    public static void main(String[] arguments) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper zooKeeper = new ZooKeeper(arguments[0], SESSION, (WatchedEvent event) -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        String secret = arguments.length > 1 ? arguments[1] : null;
        if (secret != null) {
            zooKeeper.addAuthInfo("digest", secret.getBytes(StandardCharsets.UTF_8));
        }
        connected.await();
        Nodes nodes = new Nodes(zooKeeper, arguments[0], secret);
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            try {
                nodes.run(line.split(" ", 3));
                System.out.println("ok");
            } catch (Exception error) {
                System.out.println("error: " + error);
            }
        }
        zooKeeper.close();
        System.exit(0);
    }

    private void run(String[] words) throws Exception {
        byte[] data = (words.length > 2 ? words[2] : "").getBytes(StandardCharsets.UTF_8);
        switch (words[0]) {
            case "put" -> put(words[1], data, CreateMode.PERSISTENT);
            case "ephemeral" -> put(words[1], data, CreateMode.EPHEMERAL);
            case "delete" -> delete(words[1]);
            case "private" -> {
                // What the digest scheme knows of USER:PASSWORD.
                byte[] digest = MessageDigest.getInstance("SHA-1").digest(secret.getBytes(StandardCharsets.UTF_8));
                Id owner = new Id("digest", secret.split(":")[0] + ":" + Base64.getEncoder().encodeToString(digest));
                // The client asks the list for null, which an immutable one refuses.
                zooKeeper.setACL(words[1], new ArrayList<>(List.of(new ACL(ZooDefs.Perms.ALL, owner))), -1);
            }
            case "public" -> zooKeeper.setACL(words[1], ZooDefs.Ids.OPEN_ACL_UNSAFE, -1);
            case "bulk" -> bulk(Integer.parseInt(words[1]));
            case "curator" -> register(words[1], words[2].split(" "));
            case "follow" -> follow(words[1]);
            case "leave" -> discovery.unregisterService(
                    ServiceInstance.<Payload>builder().name(words[1]).id(words[2]).address("x").port(1).build());
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void put(String path, byte[] data, CreateMode mode) throws Exception {
        for (int at = path.indexOf('/', 1); at > 0; at = path.indexOf('/', at + 1)) {
            try {
                zooKeeper.create(path.substring(0, at), new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            } catch (KeeperException.NodeExistsException exists) {
                // It is there.
            }
        }
        try {
            zooKeeper.create(path, data, ZooDefs.Ids.OPEN_ACL_UNSAFE, mode);
        } catch (KeeperException.NodeExistsException exists) {
            zooKeeper.setData(path, data, -1);
        }
    }

    private void delete(String path) throws Exception {
        for (String child : zooKeeper.getChildren(path, false)) {
            delete(path + "/" + child);
        }
        zooKeeper.delete(path, -1);
    }

    private void follow(String path) throws Exception {
        byte[] data = zooKeeper.getData(path, event -> {
            try {
                follow(path);
            } catch (Exception error) {
                System.out.println("error: " + error);
            }
        }, null);
        System.out.println(new String(data, StandardCharsets.UTF_8));
    }

    /** Interfaces in transactions of 50, so that thousands take seconds. */
    private void bulk(int count) throws Exception {
        put("/dubbo", new byte[0], CreateMode.PERSISTENT);
        List<Op> operations = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            String root = "/dubbo/bulk.S" + number;
            List<String> paths = new ArrayList<>(List.of(root, root + "/providers", root + "/configurators"));
            for (int host = 1; host <= 2; host++) {
                String address = "10." + host + "." + number / 250 + "." + (number % 250 + 1);
                paths.add(root + "/providers/dubbo%3A%2F%2F" + address + "%3A20880%2Fbulk.S" + number + "%3Fapplication%3Dbulk");
            }
            for (String path : paths) {
                operations.add(Op.create(path, new byte[0], ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT));
            }
            if (number % 50 == 49 || number == count - 1) {
                zooKeeper.multi(operations);
                operations.clear();
            }
        }
    }

    private void register(String name, String[] words) throws Exception {
        if (discovery == null) {
            curator = CuratorFrameworkFactory.newClient(server, new RetryForever(200));
            curator.start();
            discovery = ServiceDiscoveryBuilder.builder(Payload.class).client(curator).basePath("/services").build();
            discovery.start();
        }
        Payload payload = new Payload(name + "-" + words[0], name, Map.of("instance_status", words[3], "tier", "web"));
        discovery.registerService(ServiceInstance.<Payload>builder()
                .name(name).id(words[0]).address(words[1]).port(Integer.parseInt(words[2])).payload(payload).build());
    }
}
