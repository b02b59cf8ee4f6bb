package pilotfish.dubbo;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.MetadataReportConfig;
import org.apache.dubbo.config.ProtocolConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.ServiceConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;

/**
 * A provider of {@link Greeter}: {@code Provider name=A registry=zookeeper://HOST:PORT protocols=dubbo:20880,tri:50051}, with
 * {@code application}, {@code mode} (interface, instance or all), {@code metadata} (local or remote), {@code group}, {@code version},
 * {@code weight} and {@code serialization} where the defaults of Dubbo do not do. It prints {@code ready}, and ends with its input.
 */
public final class Provider {
    private Provider() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = options(arguments);
        String name = options.getOrDefault("name", "A");

        ApplicationConfig application = new ApplicationConfig(options.getOrDefault("application", "greeter"));
        application.setQosEnable(false);
        application.setRegisterMode(options.getOrDefault("mode", "all"));
        application.setMetadataType(options.getOrDefault("metadata", "local"));

        RegistryConfig registry = new RegistryConfig(options.get("registry"));
        List<ProtocolConfig> protocols = new ArrayList<>();
        for (String protocol : options.get("protocols").split(",")) {
            String[] parts = protocol.split(":");
            ProtocolConfig config = new ProtocolConfig(parts[0], Integer.parseInt(parts[1]));
            config.setHost("127.0.0.1");
            if (options.containsKey("serialization")) {
                config.setSerialization(options.get("serialization"));
                config.setPreferSerialization(options.get("serialization"));
            }
            protocols.add(config);
        }

        ServiceConfig<Greeter> service = new ServiceConfig<>();
        service.setInterface(Greeter.class);
        service.setRef(new Answers(name));
        service.setGroup(options.get("group"));
        service.setVersion(options.get("version"));
        if (options.containsKey("weight")) {
            service.setWeight(Integer.parseInt(options.get("weight")));
        }
        service.setParameters(new HashMap<>(Map.of("zone", options.getOrDefault("zone", "a"))));

        DubboBootstrap bootstrap = DubboBootstrap.getInstance().application(application).registry(registry);
        if (options.containsKey("report")) {
            bootstrap.metadataReport(new MetadataReportConfig(options.get("report")));
        }
        bootstrap.protocols(protocols).service(service).start();
        System.out.println("ready");
        // The end of the input is the end of the test.
        while (System.in.read() >= 0) {}
        bootstrap.stop();
        System.exit(0);
    }

    static Map<String, String> options(String[] arguments) {
        Map<String, String> options = new HashMap<>();
        for (String argument : arguments) {
            String[] parts = argument.split("=", 2);
            options.put(parts[0], parts[1]);
        }
        return options;
    }

    private record Answers(String provider) implements Greeter {
        @Override
        public String greet(String name) {
            return "hello " + name + " from " + provider;
        }

        @Override
        public String leave(String name) {
            return "goodbye " + name + " from " + provider;
        }
    }
}
