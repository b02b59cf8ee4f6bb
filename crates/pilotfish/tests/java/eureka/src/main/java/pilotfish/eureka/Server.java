package pilotfish.eureka;

import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.cloud.netflix.eureka.server.EnableEurekaServer;
import org.springframework.context.annotation.Configuration;
import org.springframework.context.annotation.Import;

/** A Eureka server as most people run it: Spring Cloud's. Its settings are its arguments, as in {@code --server.port=8761}. */
@Configuration(proxyBeanMethods = false)
@EnableAutoConfiguration
@Import(Security.class)
@EnableEurekaServer
public class Server {
    public static void main(String[] arguments) {
        SpringApplication.run(Server.class, arguments);
    }
}
