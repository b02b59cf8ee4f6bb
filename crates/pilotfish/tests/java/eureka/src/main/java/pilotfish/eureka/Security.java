package pilotfish.eureka;

import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.core.env.Environment;
import org.springframework.security.config.Customizer;
import org.springframework.security.config.annotation.web.builders.HttpSecurity;
import org.springframework.security.config.annotation.web.configurers.AbstractHttpConfigurer;
import org.springframework.security.web.SecurityFilterChain;

/** Asks for a name and a password where {@code --spring.security.user.password} is set, and lets everybody in where it is not. */
@Configuration(proxyBeanMethods = false)
public class Security {
    @Bean
    SecurityFilterChain rules(HttpSecurity http, Environment settings) throws Exception {
        boolean isOpen = !settings.containsProperty("spring.security.user.password");
        http.authorizeHttpRequests(requests -> {
            var any = requests.anyRequest();
            if (isOpen) {
                any.permitAll();
            } else {
                any.authenticated();
            }
        });
        // Eureka's clients are no browsers.
        http.csrf(AbstractHttpConfigurer::disable);
        http.httpBasic(Customizer.withDefaults());
        return http.build();
    }
}
