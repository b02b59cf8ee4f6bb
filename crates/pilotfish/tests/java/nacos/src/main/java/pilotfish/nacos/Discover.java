package pilotfish.nacos;

import com.alibaba.nacos.api.naming.NamingFactory;
import com.alibaba.nacos.api.naming.NamingService;
import com.alibaba.nacos.api.naming.listener.NamingEvent;
import com.alibaba.nacos.api.naming.pojo.Instance;
import java.util.List;
import java.util.Properties;
import java.util.stream.Collectors;

/** Subscribes to one service and prints its instances after each change: {@code SERVER NAMESPACE GROUP SERVICE}. */
public final class Discover {
    private Discover() {}

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("serverAddr", arguments[0]);
        properties.setProperty("namespace", arguments[1]);
        // An empty list is a change as any other.
        properties.setProperty("namingPushEmptyProtection", "false");
        NamingService naming = NamingFactory.createNamingService(properties);
        naming.subscribe(arguments[3], arguments[2], event -> print(((NamingEvent) event).getInstances()));
        print(naming.getAllInstances(arguments[3], arguments[2]));
        Thread.sleep(Long.MAX_VALUE);
    }

    private static synchronized void print(List<Instance> instances) {
        System.out.println(instances.stream()
                .filter(Instance::isHealthy)
                .map(instance -> instance.getIp() + ":" + instance.getPort() + " " + instance.getMetadata())
                .sorted()
                .collect(Collectors.joining(", ", "instances [", "]")));
    }
}
