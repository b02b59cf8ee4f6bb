package pilotfish.dubbo;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.dubbo.config.ApplicationConfig;
import org.apache.dubbo.config.ReferenceConfig;
import org.apache.dubbo.config.RegistryConfig;
import org.apache.dubbo.config.bootstrap.DubboBootstrap;

/**
 * A consumer of {@link Greeter}: {@code Consumer url=dubbo://HOST:PORT}, or {@code registry=zookeeper://HOST:PORT}, with {@code group} and
 * {@code version}. It prints {@code ready}, then for each line {@code METHOD NAME} of its input the answer, or {@code error: REASON}.
 */
public final class Consumer {
    private Consumer() {}

    public static void main(String[] arguments) throws Exception {
        Map<String, String> options = Provider.options(arguments);
        ApplicationConfig application = new ApplicationConfig("consumer");
        application.setQosEnable(false);
        DubboBootstrap bootstrap = DubboBootstrap.getInstance().application(application);

        ReferenceConfig<Greeter> reference = new ReferenceConfig<>();
        reference.setInterface(Greeter.class);
        reference.setGroup(options.get("group"));
        reference.setVersion(options.get("version"));
        reference.setUrl(options.get("url"));
        reference.setCheck(false);
        reference.setRetries(0);
        reference.setTimeout(5_000);
        if (options.containsKey("registry")) {
            bootstrap.registry(new RegistryConfig(options.get("registry")));
        } else {
            bootstrap.registry(new RegistryConfig(RegistryConfig.NO_AVAILABLE));
        }
        bootstrap.reference(reference).start();
        Greeter greeter = reference.get();
        System.out.println("ready");

        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(answer(greeter, line));
        }
        bootstrap.stop();
        System.exit(0);
    }

    private static String answer(Greeter greeter, String line) {
        String[] words = line.split(" ", 2);
        try {
            return words[0].equals("leave") ? greeter.leave(words[1]) : greeter.greet(words[1]);
        } catch (RuntimeException error) {
            return "error: " + String.valueOf(error.getMessage()).replace('\n', ' ');
        }
    }
}
