package pilotfish.eureka;

import java.util.Map;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;
import org.springframework.web.bind.annotation.GetMapping;
import org.springframework.web.bind.annotation.RestController;

/** An application that registers by Spring Cloud's Eureka client, and answers every request with its instance's id. */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@Import(Security.class)
@RestController
public class Application {
    @Value("${eureka.instance.instance-id}")
    private String instance;

    @GetMapping("/**")
    public Map<String, String> answer() {
        return Map.of("instance", instance);
    }

    public static void main(String[] arguments) {
        // The server's jars on the class path suggest a transport that only the server has.
        System.setProperty("eureka.client.jersey.enabled", "false");
        SpringApplication.run(Application.class, arguments);
    }
}
