package pilotfish.nacos;

import com.alibaba.nacos.api.naming.NamingFactory;
import com.alibaba.nacos.api.naming.NamingService;
import com.alibaba.nacos.api.naming.pojo.Instance;
import java.util.Properties;

/** Registers one ephemeral instance and stays until it is ended: {@code SERVER NAMESPACE GROUP SERVICE IP PORT [KEY=VALUE...]}. */
public final class Register {
    private Register() {}

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.setProperty("serverAddr", arguments[0]);
        properties.setProperty("namespace", arguments[1]);
        NamingService naming = NamingFactory.createNamingService(properties);
        Instance instance = new Instance();
        instance.setIp(arguments[4]);
        instance.setPort(Integer.parseInt(arguments[5]));
        for (int i = 6; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            instance.addMetadata(pair[0], pair[1]);
        }
        naming.registerInstance(arguments[3], arguments[2], instance);
        System.out.println("registered");
        Thread.sleep(Long.MAX_VALUE);
    }
}
